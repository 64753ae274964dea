import type { Item, Reply, Script, ScriptFile } from "../scripts/script-definition.ts";
import { hasMoved, isMoving } from "./topology/moving-slots.ts";

/** More items wait for the next call, so that no call blocks Redis for long. */
const ITEMS_MAX = 32;

/** What becomes of a call that failed: the result of another try, or its error. */
export type Recover = <Call, Result>(
  script: Script<Call, Result>,
  call: Call,
  item: Item,
  error: unknown,
) => Promise<Result>;

interface Waiting {
  call: unknown;
  item: Item;
  recover: Recover;
  resolve(result: unknown): void;
  reject(error: unknown): void;
}

type AnyScript = Script<unknown, unknown>;

interface Batch {
  script: AnyScript;
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
 * @param options.isApart whether all names of a call must share a hash tag: a call per partition
 */
export function createBatcher(options: {
  send(script: ScriptFile, items: readonly Item[]): Promise<(Reply | Error)[]>;
  sendAgain(script: ScriptFile, items: readonly Item[]): Promise<(Reply | Error)[]>;
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
      for (const [at, one] of waiting.entries()) settle(script, one, replies[at]!);
    } catch (error) {
      const parts = hasMoved(error) || isMoving(error) ? byPartition(batch) : [];
      if (parts.length > 1) for (const part of parts) void run(part, options.sendAgain);
      else for (const one of waiting) fail(script, one, error);
    }
  }

  function batchFor(script: AnyScript, item: Item): Batch {
    const tag = options.isApart() ? hashTag(item.keys[0]!) : undefined;
    for (const batch of open)
      if (batch.script === script && batch.tag === tag && hasRoomFor(item, batch)) return batch;
    if (open.length === 0) setImmediate(flush);
    const batch = { script, shared: item.shared, tag, waiting: [] };
    open.push(batch);
    return batch;
  }

  /** Resolves with what the script reads of the reply. */
  return <Call, Result>(
    script: Script<Call, Result>,
    call: Call,
    item: Item,
    recover: Recover,
  ): Promise<Result> =>
    new Promise((resolve, reject) => {
      batchFor(script as AnyScript, item).waiting.push({ call, item, recover, resolve, reject } as Waiting);
    });
}

function settle(script: AnyScript, waiting: Waiting, reply: Reply | Error): void {
  try {
    if (reply instanceof Error) fail(script, waiting, reply);
    else waiting.resolve(script.read(reply, waiting.call));
  } catch (error) {
    waiting.reject(error);
  }
}

function fail(script: AnyScript, { call, item, recover, resolve }: Waiting, error: unknown): void {
  resolve(recover(script, call, item, error));
}

const hasRoomFor = (item: Item, { shared, waiting }: Batch): boolean =>
  shared[0] === item.shared[0] && shared[1] === item.shared[1] && waiting.length < ITEMS_MAX;

/** The same items, those of each partition by themselves. */
function byPartition({ script, shared, tag, waiting }: Batch): Batch[] {
  if (tag !== undefined) return [];
  const parts = Map.groupBy(waiting, ({ item }) => hashTag(item.keys[0]!));
  return [...parts].map(([own, some]) => ({ script, shared, tag: own, waiting: some }));
}

const hashTag = (name: string): string => name.slice(0, name.indexOf("}"));
