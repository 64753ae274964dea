import { compareIds } from "../records/entry-ids.ts";
import type { LedgerEntry } from "../records/ledger-entries.ts";
import { isSameEntry } from "./archive-pages.ts";
import type { ArchiveTables } from "./tables.ts";

const PAGE = 200;

/** The newest entry that archive and store have in common; undefined if none. */
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
