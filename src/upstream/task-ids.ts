import { TASK_ID } from "../domain/task-states.ts";

// The ids that customers get. They are parts of paths, so an id of the upstream that is not fit for one is encoded.

/** Begins an encoded id. An id of the upstream that begins with it is encoded, too, so that no two ids become one. */
const ENCODED = "~e~";

/** An id of the upstream as customers get it; undefined for one that is empty, ill-formed or too long. */
export function shownTaskId(id: string): string | undefined {
  if (TASK_ID.test(id) && !id.startsWith(ENCODED)) return id;
  // The encoding is longer than the id; a lone surrogate has no UTF-8.
  if (id === "" || id.length > 200 || !id.isWellFormed()) return undefined;
  const encoded = ENCODED + Buffer.from(id).toString("base64url");
  return TASK_ID.test(encoded) ? encoded : undefined;
}

export function upstreamTaskId(shown: string): string {
  if (!shown.startsWith(ENCODED)) return shown;
  const id = Buffer.from(shown.slice(ENCODED.length), "base64url").toString("utf8");
  return shownTaskId(id) === shown ? id : shown;
}
