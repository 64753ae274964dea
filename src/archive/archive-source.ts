import { readCut } from "../records/checkpoints.ts";
import { LEDGER_START, type LedgerEntry, ledgerEntry, type StreamEntry } from "../records/ledger-entries.ts";
import { archiveNames, partitionNames } from "../records/names.ts";
import type { Connection } from "../redis/connection.ts";
import { many } from "../redis/pipelines.ts";
import type { Primary } from "../redis/primary.ts";
import { type Archived, type ArchivedCall, archived } from "../scripts/archived.ts";
import { turn } from "../scripts/turn.ts";
import { readPages } from "./archive-pages.ts";
import { announceBatches, beginCopying, readArchiveRecords, renewGeneration } from "./archive-record.ts";
import { type Trimmed, type TrimOptions, trimLedger } from "./trim-ledger.ts";

export type ArchiveSource = ReturnType<typeof createArchiveSource>;

/**
 * Redis commands of the archive. Only partitions with a usable primary are read. @throws GatewayError `store_unavailable` from
 * each
 */
export function createArchiveSource(connection: Connection) {
  return {
    storeId: (): string | undefined => connection.facts()?.id,
    primaries(): { primary: Primary; partitions: number[] }[] {
      const all = Array.from({ length: connection.facts()?.partitions ?? 0 }, (_, partition) => partition);
      const inUse = all.filter((partition) => !connection.isFrozen(partition));
      return connection.primaries().flatMap((primary) => {
        const partitions = inUse.filter((partition) => connection.of(partition) === primary);
        return primary.breaker.isOpen() || partitions.length === 0 ? [] : [{ primary, partitions }];
      });
    },
    takeTurns,
    endTurns,
    records: readArchiveRecords,
    begin: beginCopying,
    renew: renewGeneration,
    read: readPages,
    announce: announceBatches,
    oldestUncopied,
    entries: entriesOf,
    cut: (primary: Primary, partition: number): Promise<string> =>
      primary.command(async (redis) => (await readCut(redis, partition)).lastEntry),
    /** True if replicas have all writes so far, or need not confirm. */
    async isConfirmed({ confirmation }: Primary): Promise<boolean> {
      return confirmation === undefined || (await confirmation.confirmed()) === "replicas";
    },
    trim: ({ run }: Primary, options: TrimOptions): Promise<Trimmed> => trimLedger(run, options),
    archived: (primary: Primary, call: ArchivedCall): Promise<Archived> =>
      primary.run(archived, call).then(({ outcome }) => outcome),
  };
}

const entriesOf = (primary: Primary, partition: number, ids: readonly string[]): Promise<LedgerEntry[]> =>
  primary.command(async (redis) => {
    const { ledger } = partitionNames(partition);
    const found = await many<StreamEntry[], string>(redis, ids, (pipe, id) => pipe.xrange(ledger, id, id));
    return found.flat().map((entry) => ledgerEntry(partition, entry));
  });

async function oldestUncopied(
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
async function takeTurns(
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

const endTurns = (primary: Primary, partitions: readonly number[], holder: string): Promise<void> =>
  primary.command(async (redis) => {
    const names = partitions.map((partition) => archiveNames(partition).archiver);
    const holders = await many<string | null, string>(redis, names, (pipe, name) => pipe.get(name));
    await many(
      redis,
      names.filter((_, at) => holders[at] === holder),
      (pipe, name) => pipe.del(name),
    );
  });
