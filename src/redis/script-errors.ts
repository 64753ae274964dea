import { setTimeout as wait } from "node:timers/promises";
import { ItemError } from "../scripts/script-definition.ts";

/** `transient`: may succeed later, and may have run. `refused`: until an operator changes something; has not run. `script`: would fail again. */
type StoreFault = "transient" | "refused" | "script";

/** By the code, the first word of Redis's message. */
const FAULT_OF_CODE: ReadonlyMap<string, StoreFault> = new Map([
  ["ASK", "transient"],
  ["BUSY", "transient"],
  ["CLUSTERDOWN", "transient"],
  ["EXECABORT", "transient"],
  ["LOADING", "transient"],
  ["MASTERDOWN", "transient"],
  ["MISCONF", "transient"],
  ["MOVED", "transient"],
  ["NOREPLICAS", "transient"],
  ["NOSCRIPT", "transient"],
  ["READONLY", "transient"],
  ["TRYAGAIN", "transient"],
  ["CROSSSLOT", "refused"],
  ["FROZEN", "refused"],
  ["NOAUTH", "refused"],
  ["NOPERM", "refused"],
  ["OOM", "refused"],
  ["WRONGPASS", "refused"],
  ["WRONGTYPE", "script"],
]);

/**
 * By the text behind `ERR`, the code of what has none of its own. A command inside a script fails with these before it runs; the words are those
 * of `script.c` in Redis 7.0 to 8.0 and Valkey 8.
 */
const FAULT_OF_TEXT: readonly (readonly [RegExp, StoreFault])[] = [
  // The slot is moving to another node of the cluster, or has moved.
  [/^Script attempted to access a non local key in a cluster node/, "transient"],
  // The gateway does not know yet that the server is a cluster. It learns that before the breaker closes.
  [/^Script attempted to access keys that do not hash to the same slot/, "transient"],
  [/^Script attempted to access a slot not served/, "transient"],
  [/^Unable to execute command .* undeclared keys were accessed during rehashing of the slot/, "transient"],
  [/^Script attempted to execute a (write )?command while the cluster is down/, "transient"],
  [/^Can not execute the command on a stale replica/, "transient"],
  // A missing permission.
  [/^The user executing the script |^ACL failure in script: /, "refused"],
  // A command that the server's configuration renames or forbids.
  [/^Unknown (Redis )?command called from script/, "refused"],
  [/^This Redis command is not allowed from script/, "refused"],
];

export function storeFault(error: unknown): StoreFault {
  if (error instanceof ItemError)
    return knownFault(error.message) ?? (error.message.startsWith("ERR ") ? "script" : "refused");
  if (!isReply(error)) return "transient";
  // Any other error of a whole call may be a proxy's, behind which the call may still run.
  const fault = knownFault(error.message) ?? (error.message.includes("user_script") ? "script" : "transient");
  // The error of a whole call never proves that the script fails on the data of one item.
  return fault === "script" ? "refused" : fault;
}

function knownFault(message: string): StoreFault | undefined {
  const [code = ""] = message.split(" ", 1);
  if (code !== "ERR") return FAULT_OF_CODE.get(code);
  const text = message.slice("ERR ".length);
  return FAULT_OF_TEXT.find(([pattern]) => pattern.test(text))?.[1];
}

/** True when the store has refused a call and would refuse it again; false when it was away, or the error is transient. */
export const isRefusedByStore = (error: unknown): boolean => storeFault(error) !== "transient";

export const isOutOfMemory = (error: unknown): boolean => isReply(error) && error.message.startsWith("OOM ");

/** Stricter than `isRefusedByStore`: a charge is not given up for anything that an operator can mend, nor for an error of a whole call. */
export const wouldFailAgain = (error: unknown): boolean => storeFault(error) === "script";

export const isReply = (error: unknown): error is Error =>
  error instanceof Error && error.name === "ReplyError";

/** Between tries. Most slots have some hundred small names, which move in milliseconds. */
const WAITS_MS = [10, 20, 40, 80];

/** True if a node has refused a command because its slot is migrating. The command has done nothing. */
export const isMoving = (error: unknown): boolean =>
  error instanceof Error && /^(ASK|TRYAGAIN) /.test(error.message);

/** Another node has the slot. The call has done nothing: each script fails so at its first command. */
export const hasMoved = (error: unknown): boolean =>
  error instanceof Error && /^MOVED |^ERR Script attempted to access a non local key/.test(error.message);

/** The slot of a name is between two nodes or on another, or its partition is frozen: no failure of the primary, and nothing was done. */
export const isOfSlot = (error: unknown): boolean =>
  isMoving(error) || hasMoved(error) || (error instanceof Error && error.message.startsWith("FROZEN "));

/** Again for a moment while the slot is on its way to another node. @throws what the last try throws */
export async function onceMoved<T>(command: () => Promise<T>): Promise<T> {
  for (const waitMs of WAITS_MS) {
    try {
      return await command();
    } catch (error) {
      if (!isMoving(error)) throw error;
      await wait(waitMs);
    }
  }
  return command();
}
