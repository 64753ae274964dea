import { archiveNames } from "../records/names.ts";
import { many } from "../redis/pipelines.ts";
import type { Primary } from "../redis/primary.ts";
import { turn } from "../scripts/turn.ts";

/**
 * The partitions among these that this process copies. A turn ends by itself, so what another process has is taken over once
 * that has ended or hangs. Two processes may have a partition for a moment: the archive's primary keys decide.
 */
export async function takeTurns(
  primary: Primary,
  partitions: readonly number[],
  { holder, turnMs }: { holder: string; turnMs: number },
): Promise<number[]> {
  const taken = await Promise.all(
    partitions.map((partition) =>
      primary.run(turn, { name: archiveNames(partition).archiver, holder, turnMs }),
    ),
  );
  return partitions.filter((_, at) => taken[at]);
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
