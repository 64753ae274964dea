import { partitionNames } from "../records/names.ts";
import type { Connection } from "../redis/connection.ts";
import { createDueLists } from "../redis/due-lists.ts";
import { expiring } from "../scripts/expiring.ts";
import type { Logger } from "../telemetry/log.ts";

const LOOK_EVERY_MS = 60_000;
const KEYS_AT_ONCE = 50;

/** Tells accounts, once a minute, of their keys that end soon. Every gateway looks; a script tells each key once. */
export function createExpiringKeys(connection: Connection, log: Logger) {
  const dueLists = createDueLists(connection, listsOfKeys, ["expiring"]);
  let timer: NodeJS.Timeout | undefined;
  let current: Promise<void> = Promise.resolve();
  let isStopped = false;

  async function look(): Promise<void> {
    for (const partition of (await dueLists()).expiring) {
      let taken = KEYS_AT_ONCE;
      while (taken === KEYS_AT_ONCE && !isStopped)
        ({ taken } = await connection.of(partition).run(expiring, { partition, most: KEYS_AT_ONCE }));
    }
  }

  return {
    look,
    start(): void {
      timer = setInterval(() => {
        current = look().catch((error: unknown) => log.debug({ err: error }, "no look at keys that end"));
      }, LOOK_EVERY_MS);
    },
    async stop(): Promise<void> {
      isStopped = true;
      clearInterval(timer);
      await current;
    },
  };
}

const listsOfKeys = (partitions: number) =>
  Array.from({ length: partitions }, (_, partition) => ({
    list: "expiring" as const,
    name: partitionNames(partition).expiring,
    partition,
  }));
