import type { Item, Reply, ScriptFile } from "./script-definition.ts";

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
  /** The hash tag that all names of the call share; empty where they need not. */
  tag: string;
  waiting: Waiting[];
}

/**
 * Gathers the script calls of one tick of the event loop, and sends one call per script. Decision 0020.
 * @param options.send runs one call; rejects when the whole call has failed
 * @param options.failure what an item's promise rejects with; of a call that has failed as a whole, the item is its first
 * @param options.clustered whether all names of a call must share a hash tag
 */
export function createBatcher(options: {
  send(script: ScriptFile, items: readonly Item[]): Promise<(Reply | Error)[]>;
  failure(error: unknown, item: Item): unknown;
  clustered(): boolean;
}) {
  let open: Batch[] = [];

  function flush(): void {
    const batches = open;
    open = [];
    for (const batch of batches) void run(batch);
  }

  async function run({ script, waiting }: Batch): Promise<void> {
    try {
      const replies = await options.send(
        script,
        waiting.map(({ item }) => item),
      );
      waiting.forEach(({ item, resolve, reject }, at) => {
        const reply = replies[at]!;
        if (reply instanceof Error) reject(options.failure(reply, item));
        else resolve(reply);
      });
    } catch (error) {
      for (const { reject } of waiting) reject(options.failure(error, waiting[0]!.item));
    }
  }

  return (script: ScriptFile, item: Item): Promise<Reply> =>
    new Promise((resolve, reject) => {
      const tag = options.clustered() ? hashTag(item.keys[0]!) : "";
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

const hashTag = (name: string): string => name.slice(0, name.indexOf("}"));
