import { archiveNames, requestName } from "../records/names.ts";
import type { ArchiveRecord } from "../records/records.ts";
import type { Script } from "./script-definition.ts";

export interface ArchivedCall {
  partition: number;
  /** As the partition's record has it (`ARCHIVE_FIELDS`). */
  generation: string;
  /** Id of the newest ledger entry that it has; undefined for none. */
  newest: string | undefined;
  batch: number;
  /** The previous values of these two. */
  noted: { newest: string | undefined; batch: number };
  /** The score in `done` up to which requests were looked at. */
  lookedUntil: number;
  requests: readonly { requestId: string; state: string }[];
  /** Accounts and keys, each with the number of changes that was read before it was copied. */
  changed: readonly { what: string; changes: string }[];
}

/** `other`: the archive was replaced; `unseen`: another batch was noted or announced last. Nothing happens then. */
type Archived = "archived" | "other" | "unseen";

export const archived: Script<ArchivedCall, { outcome: Archived }> = {
  name: "archived",
  keys({ partition }) {
    const { archive, changed } = archiveNames(partition);
    return [archive, changed];
  },
  args({ partition, generation, newest = "", batch, noted, lookedUntil, requests, changed }) {
    return [
      generation,
      requestName(partition, ""),
      newest,
      batch,
      noted.newest ?? "",
      noted.batch,
      lookedUntil,
      requests.length,
      ...requests.flatMap(({ requestId, state }) => [requestId, state]),
      ...changed.flatMap(({ what, changes }) => [what, changes]),
    ];
  },
  read: ([outcome]) => ({ outcome: outcome as Archived }),
};

interface NoteCall {
  partition: number;
  /** Nothing is noted if the record has another one; undefined: whatever it has. */
  generation?: string | undefined;
  record?: { [field in keyof ArchiveRecord]?: string | number };
  /** As `account <id>` or `key <id>`; some hundred at most. */
  changed?: readonly string[];
}

/** Notes what a copier is about to do. @returns whether the record had that generation */
export const note: Script<NoteCall, boolean> = {
  name: "note",
  keys({ partition }) {
    const { archive, changed } = archiveNames(partition);
    return [archive, changed];
  },
  args({ generation = "", record = {}, changed = [] }) {
    const values = Object.entries(record).flat();
    return [generation, values.length, ...values, ...changed];
  },
  read: ([outcome]) => outcome === "noted",
};
