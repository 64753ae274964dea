import { lstatSync, mkdirSync, rmSync } from "node:fs";
import { open, rename, stat } from "node:fs/promises";
import { join } from "node:path";
import type { Logger } from "../../telemetry/log.ts";
import { fileNamesIn, newFileName, readRegularFile } from "../process-files.ts";
import type { ConfirmedEntry } from "./last-confirmed.ts";

const FORMAT = 1;
/** Not `.ndjson`, which gateways take over as journals. */
const SUFFIX = ".entries.jsonl";
const FILE_BYTES_MAX = 8 * 2 ** 20;
const FOLDER_BYTES_MAX = 64 * 2 ** 20;

export interface LedgerPage {
  storeId: string;
  acceptedAt: number;
  ledger: string;
  after: string | undefined;
  entries: readonly ConfirmedEntry[];
}

export interface RecentEntry extends ConfirmedEntry {
  after: string | undefined;
}

interface Line extends Omit<LedgerPage, "storeId"> {
  format: number;
  store: string;
}

/** Entries of the last minutes or hours, for the list of losses. @param folder undefined: nothing is kept */
export function openRecentEntries(folder: string | undefined, log: Logger, fileBytesMax = FILE_BYTES_MAX) {
  const name = newFileName("");
  let hasFailed = false;

  async function append(into: string, text: string): Promise<void> {
    mkdirSync(into, { recursive: true });
    const path = join(into, `${name}${SUFFIX}`);
    const { size } = await stat(path).catch(() => ({ size: 0 }));
    if (size >= fileBytesMax) await rename(path, join(into, `${name}.before${SUFFIX}`));
    if (size === 0 || size >= fileBytesMax) removeOldest(into);
    const file = await open(path, "a", 0o600);
    try {
      // A failed write may have left half a line.
      await file.appendFile((hasFailed ? "\n" : "") + text);
      await file.datasync();
    } finally {
      await file.close();
    }
  }

  return {
    /** Pages that cannot be written are gaps, which the list reports. */
    async keep(pages: readonly LedgerPage[]): Promise<void> {
      if (folder === undefined || pages.length === 0) return;
      try {
        await append(folder, pages.map(lineOf).join(""));
        hasFailed = false;
      } catch (error) {
        if (!hasFailed) log.error({ err: error, folder }, "the recent ledger entries cannot be written");
        hasFailed = true;
      }
    },
  };
}

export type RecentEntries = ReturnType<typeof openRecentEntries>;

const lineOf = ({ storeId, ...page }: LedgerPage): string =>
  `${JSON.stringify({ format: FORMAT, store: storeId, ...page } satisfies Line)}\n`;

/** The files of running processes are the newest. */
function removeOldest(folder: string): void {
  const files = fileNamesIn(folder, SUFFIX).flatMap((name) => {
    const found = lstatSync(join(folder, name), { throwIfNoEntry: false });
    return found?.isFile() ? [{ name, bytes: found.size, changedMs: found.mtimeMs }] : [];
  });
  let bytes = 0;
  for (const file of files.sort((a, b) => b.changedMs - a.changedMs)) {
    bytes += file.bytes;
    if (bytes > FOLDER_BYTES_MAX) rmSync(join(folder, file.name), { force: true });
  }
}

export function readRecentEntries(
  folder: string,
  storeId: string,
  sinceAcceptedAt: number,
): Map<string, Map<string, RecentEntry>> {
  const ledgers = new Map<string, Map<string, RecentEntry>>();
  for (const name of fileNamesIn(folder, SUFFIX)) {
    for (const { store, acceptedAt, ledger, after, entries } of linesOf(join(folder, name))) {
      if (store !== storeId || acceptedAt < sinceAcceptedAt) continue;
      const known = ledgers.get(ledger) ?? new Map<string, RecentEntry>();
      ledgers.set(ledger, known);
      let before = after;
      for (const entry of entries) {
        known.set(entry.id, { ...entry, after: before ?? known.get(entry.id)?.after });
        before = entry.id;
      }
    }
  }
  return ledgers;
}

function linesOf(path: string): Line[] {
  try {
    return readRegularFile(path, 2 * FILE_BYTES_MAX)
      .split("\n")
      .flatMap(parsed);
  } catch {
    return [];
  }
}

function parsed(text: string): Line[] {
  try {
    const line = JSON.parse(text) as Line;
    return line.format === FORMAT ? [line] : [];
  } catch {
    return [];
  }
}
