import type { Item, Reply, ScriptFile } from "../scripts/script-definition.ts";
import { hasMoved, isMoving } from "./topology/moving-slots.ts";

/** More items wait for the next call, so that no call blocks Redis for long. */
const ITEMS_MAX = 32;

interface Waiting {
  item: Item;
  resolve(reply: Reply): void;
  reject(error: unknown): void;
}

interface Batch {
  script: ScriptFile;
  shared: Item["shared"];
  /** The hash tag that all names of the call share; undefined where they need not. */
  tag: string | undefined;
  waiting: Waiting[];
}

/**
 * Gathers the script calls of one tick of the event loop, and sends one call per script. If Redis refuses a call for the slot
 * of its first item, each partition's items are sent once more by themselves. Decisions 0020 and 0042.
 * @param options.send runs one call; rejects when the whole call has failed
 * @param options.sendAgain the same for items of a call that has failed
 * @param options.failure what an item's promise rejects with
 * @param options.isApart whether all names of a call must share a hash tag: a call per partition
 */
export function createBatcher(options: {
  send(script: ScriptFile, items: readonly Item[]): Promise<(Reply | Error)[]>;
  sendAgain(script: ScriptFile, items: readonly Item[]): Promise<(Reply | Error)[]>;
  failure(error: unknown, item: Item): unknown;
  isApart(): boolean;
}) {
  let open: Batch[] = [];

  function flush(): void {
    const batches = open;
    open = [];
    for (const batch of batches) void run(batch, options.send);
  }

  async function run(batch: Batch, send: typeof options.send): Promise<void> {
    const { script, waiting } = batch;
    try {
      const replies = await send(
        script,
        waiting.map(({ item }) => item),
      );
      waiting.forEach(({ item, resolve, reject }, at) => {
        const reply = replies[at]!;
        if (reply instanceof Error) reject(options.failure(reply, item));
        else resolve(reply);
      });
    } catch (error) {
      const parts = hasMoved(error) || isMoving(error) ? byPartition(batch) : [];
      if (parts.length > 1) for (const part of parts) void run(part, options.sendAgain);
      else for (const { item, reject } of waiting) reject(options.failure(error, item));
    }
  }

  return (script: ScriptFile, item: Item): Promise<Reply> =>
    new Promise((resolve, reject) => {
      const tag = options.isApart() ? hashTag(item.keys[0]!) : undefined;
      let batch = open.find(
        (one) =>
          one.script === script &&
          one.tag === tag &&
          one.shared[0] === item.shared[0] &&
          one.shared[1] === item.shared[1] &&
          one.waiting.length < ITEMS_MAX,
      );
      if (!batch) {
        if (open.length === 0) setImmediate(flush);
        batch = { script, shared: item.shared, tag, waiting: [] };
        open.push(batch);
      }
      batch.waiting.push({ item, resolve, reject });
    });
}

/** The same items, those of each partition by themselves. */
function byPartition({ script, shared, tag, waiting }: Batch): Batch[] {
  if (tag !== undefined) return [];
  const parts = Map.groupBy(waiting, ({ item }) => hashTag(item.keys[0]!));
  return [...parts].map(([own, some]) => ({ script, shared, tag: own, waiting: some }));
}

const hashTag = (name: string): string => name.slice(0, name.indexOf("}"));
