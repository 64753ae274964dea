import type { Item, Reply, Verb } from "./scripts.ts";

/** More items wait for the next call, so that no call keeps Redis from others for long. */
const ITEMS_MAX = 32;

interface Waiting extends Item {
  resolve(reply: Reply): void;
  reject(error: unknown): void;
}

interface Batch {
  verb: Verb;
  now: string | number | undefined;
  tiers: string | number | undefined;
  /** The hash tag that all names of the call share; empty where they need not. */
  tag: string;
  items: Waiting[];
}

/**
 * Gathers what the requests of one turn of the event loop ask of the store, and sends it in one call per verb.
 * Decision 0020.
 * @param options.send runs one call; rejects when nothing is known of any of its items
 * @param options.failure what an item's promise rejects with
 * @param options.clustered whether all names of a call must share a hash tag
 */
export function createBatcher(options: {
  send(verb: Verb, items: readonly Item[]): Promise<(Reply | Error)[]>;
  failure(error: unknown): unknown;
  clustered(): boolean;
}) {
  let open: Batch[] = [];

  function flush(): void {
    const batches = open;
    open = [];
    for (const batch of batches) void run(batch);
  }

  async function run({ verb, items }: Batch): Promise<void> {
    try {
      const replies = await options.send(verb, items);
      items.forEach((item, at) => {
        const reply = replies[at]!;
        if (reply instanceof Error) item.reject(options.failure(reply));
        else item.resolve(reply);
      });
    } catch (error) {
      for (const item of items) item.reject(options.failure(error));
    }
  }

  return (verb: Verb, keys: Item["keys"], args: Item["args"]): Promise<Reply> =>
    new Promise((resolve, reject) => {
      const [now, tiers] = args;
      const tag = options.clustered() ? hashTag(keys[0]!) : "";
      let batch = open.find(
        (one) =>
          one.verb === verb &&
          one.tag === tag &&
          one.tiers === tiers &&
          one.now === now &&
          one.items.length < ITEMS_MAX,
      );
      if (!batch) {
        if (open.length === 0) setImmediate(flush);
        batch = { verb, now, tiers, tag, items: [] };
        open.push(batch);
      }
      batch.items.push({ keys, args, resolve, reject });
    });
}

const hashTag = (name: string): string => name.slice(0, name.indexOf("}"));
