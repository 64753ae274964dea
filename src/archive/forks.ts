import { compareIds } from "../records/entry-ids.ts";
import type { LedgerEntry } from "../records/ledger-entries.ts";
import { isSameEntry } from "./archive-pages.ts";
import type { ArchiveTables } from "./tables.ts";

/** Entries of the archive that are looked for in the store at a time. */
const PAGE = 200;

/**
 * The newest entry that archive and store both have. A failover or an old dump has taken what the archive has after it.
 * @param newest the newest entry of the archive, which the store has not
 * @param cut id of the last entry that has left the store: the store had all up to there
 * @param read the store's entries of these ids; those that it has not are left out
 * @returns undefined if they have nothing in common
 */
export async function findForkPoint(
  tables: Pick<ArchiveTables, "entriesBefore">,
  newest: LedgerEntry,
  cut: string,
  read: (ids: readonly string[]) => Promise<LedgerEntry[]>,
): Promise<LedgerEntry | undefined> {
  let before = newest;
  for (;;) {
    const page = await tables.entriesBefore(before.partition, before.streamId, PAGE);
    const stored = new Map(
      (await read(page.map(({ streamId }) => streamId))).map((entry) => [entry.streamId, entry]),
    );
    const found = page.find((entry) => {
      if (compareIds(entry.streamId, cut) <= 0) return true;
      const same = stored.get(entry.streamId);
      return same !== undefined && isSameEntry(same, entry);
    });
    if (found) return found;
    const last = page.at(-1);
    if (page.length < PAGE || !last) return undefined;
    before = last;
  }
}
