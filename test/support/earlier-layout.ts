import type { Redis } from "ioredis";
import { type Checkpoint, checkpointOf, whatFor } from "../../src/store/checkpoints.ts";
import { claimName, earlierTaskName } from "../../src/store/names.ts";

/**
 * Puts records and lists of a store of layout 4 back to the form that layout 3 has.
 * @returns how many
 */
export async function putBack(redis: Redis): Promise<number> {
  let count = 0;
  for (const name of await redis.keys("tg:{p*")) {
    const kind = name.split(":")[2];
    if (kind === "accounts" || kind === "keys") {
      const members = await redis.zrange(name, "0", "-1");
      await redis.del(name);
      await redis.sadd(name, ...members);
      count++;
    }
    if (kind === "references") count++;
    if (kind === "reference-index") await redis.del(name);
    if (kind === "checkpoint") {
      await redis.set(name, earlierCheckpoint(checkpointOf((await redis.get(name)) ?? "")!));
      count++;
    }
  }
  return count;
}

/** The text that layout 3 has of a checkpoint. */
function earlierCheckpoint({ entry, tail, ...numbers }: Checkpoint): string {
  const first = ["entry", entry, ...Object.entries(numbers).flat()].join(" ");
  const lines = tail.map((one) =>
    [one.streamId, one.atMs, one.type, one.amount, one.balanceAfter, whatFor(one)].join(" ").trimEnd(),
  );
  return [first, ...lines].join("\n");
}

/** Puts the records of tasks of a store of layout 3 on one server where layout 1 has them. */
export async function putTasksBack(redis: Redis): Promise<void> {
  for (const name of await redis.keys("tg:{p*}:task:*")) {
    const taskId = name.split(":").slice(3).join(":");
    await redis.rename(name, earlierTaskName(taskId));
    await redis.del(claimName(taskId));
  }
}
