import { archiveNames } from "./names.ts";
import { many } from "./pipelines.ts";
import type { Primary } from "./primary.ts";

/**
 * The partitions among these that this process copies. A turn ends by itself, so what another process has is taken over once
 * that has ended or hangs. Two processes may have a partition for a moment: the archive's primary keys decide.
 */
export function takeTurns(
  primary: Primary,
  partitions: readonly number[],
  { holder, turnMs }: { holder: string; turnMs: number },
): Promise<number[]> {
  return primary.command(async (redis) => {
    const holders = await many<string | null, number>(redis, partitions, (pipe, partition) =>
      pipe.set(archiveNames(partition).archiver, holder, "PX", turnMs, "NX", "GET"),
    );
    const own = partitions.filter((_, at) => holders[at] === holder);
    await many(redis, own, (pipe, partition) => pipe.pexpire(archiveNames(partition).archiver, turnMs));
    return partitions.filter((_, at) => holders[at] === null || holders[at] === holder);
  });
}

/** Ends turns of this process, so that another one takes over at once. */
export const endTurns = (primary: Primary, partitions: readonly number[], holder: string): Promise<void> =>
  primary.command(async (redis) => {
    const names = partitions.map((partition) => archiveNames(partition).archiver);
    const holders = await many<string | null, string>(redis, names, (pipe, name) => pipe.get(name));
    await many(
      redis,
      names.filter((_, at) => holders[at] === holder),
      (pipe, name) => pipe.del(name),
    );
  });
