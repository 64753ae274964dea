import { readCut } from "../records/checkpoints.ts";
import { LEDGER_START, type LedgerEntry, ledgerEntry, type StreamEntry } from "../records/ledger-entries.ts";
import { archiveNames, partitionNames } from "../records/names.ts";
import type { Connection } from "../redis/connection.ts";
import { many } from "../redis/pipelines.ts";
import type { Primary } from "../redis/primary.ts";
import { turn } from "../scripts/turn.ts";

/** Usable primaries with their partitions; frozen partitions are left out. */
export function usablePrimaries(connection: Connection): { primary: Primary; partitions: number[] }[] {
  const all = Array.from({ length: connection.known.facts?.partitions ?? 0 }, (_, partition) => partition);
  const inUse = all.filter((partition) => !connection.isFrozen(partition));
  return connection.primaries().flatMap((primary) => {
    const partitions = inUse.filter((partition) => connection.of(partition) === primary);
    return primary.breaker.isOpen || partitions.length === 0 ? [] : [{ primary, partitions }];
  });
}

export const cutOf = (primary: Primary, partition: number): Promise<string> =>
  primary.command(async (redis) => (await readCut(redis, partition)).lastEntry);

/** True if replicas have all writes so far, or need not confirm. */
export const isConfirmed = async ({ confirmation }: Primary): Promise<boolean> =>
  confirmation === undefined || (await confirmation.confirmed()) === "replicas";

export const entriesOf = (
  primary: Primary,
  partition: number,
  ids: readonly string[],
): Promise<LedgerEntry[]> =>
  primary.command(async (redis) => {
    const { ledger } = partitionNames(partition);
    const found = await many<StreamEntry[], string>(redis, ids, (pipe, id) => pipe.xrange(ledger, id, id));
    return found.flat().map((entry) => ledgerEntry(partition, entry));
  });

export async function oldestUncopied(
  primary: Primary,
  partitions: readonly number[],
): Promise<(number | undefined)[]> {
  return primary.command(async (redis) => {
    const noted = await many<string | null, number>(redis, partitions, (pipe, partition) =>
      pipe.hget(archiveNames(partition).archive, "newest"),
    );
    const firsts = await many<StreamEntry[], number>(redis, [...partitions.keys()], (pipe, at) =>
      pipe.xrange(partitionNames(partitions[at]!).ledger, `(${noted[at] ?? LEDGER_START}`, "+", "COUNT", 1),
    );
    return firsts.map(([first], at) => first && ledgerEntry(partitions[at]!, first).atMs);
  });
}

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
