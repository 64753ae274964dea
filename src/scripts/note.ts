import { archiveNames } from "../records/names.ts";
import type { ArchiveRecord } from "../records/records.ts";
import type { Script } from "./script-definition.ts";

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
