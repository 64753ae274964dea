import { archiveNames } from "../records/names.ts";
import { many } from "../redis/pipelines.ts";
import type { Primary } from "../redis/primary.ts";
import { turn } from "../scripts/turn.ts";

/**
 * Leases partitions to this process. A lease expires, so another process takes over. Two copiers at a time do no harm: primary
 * keys decide.
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
