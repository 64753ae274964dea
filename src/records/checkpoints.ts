import type { Redis } from "ioredis";
import { COMPLETED_LATE, LEDGER_START, type LedgerEntry, RECLAIM } from "./ledger-entries.ts";
import { accountNames, partitionNames } from "./names.ts";

const CHECKPOINT_NUMBERS = {
  balance: "after the last of these entries",
  entries: "how many there are",
  recharged: "credits of grants",
  consumed: "credits of charges, positive",
  refunded: "credits of refunds",
  references: "entries under a reference",
  referenced: "credits of the purchases among them",
  forgotten: "of these references, how many are in the archive alone",
  forgotten_credits: "credits of the purchases among these",
  adjusted: "credits of adjustments, those downwards negative",
  reversed: "credits of reversals, positive",
} as const;

/**
 * `tg:{pNN}:checkpoint:<account id>`: what the entries of an account add up to that have left the ledger, and the latest ten
 * of them. Written by lua/include/checkpoint.lua; redis-cli shows, for an account of which three entries have left,
 *
 *     entry 1790000000002-0 balance 80 entries 3 recharged 100 consumed 20 references 1 referenced 100
 *     1790000000002 c -10 /api/v1/gen2/text-to-video
 *     1790000000001-1@1790000000000 c -10 "
 *     1790000000000 r 100
 *
 * The numbers are in `CHECKPOINT_NUMBERS`; those of 0 are left out. The other lines are entries, most recent first: the id,
 * without `-0`; behind `@` when it was made (Unix ms), if that is not the id's time; `c`onsume or `r`echarge; the amount; then
 * the endpoint of a charge, reason and task id of a refund or of one that is taken back, `=` and the reason of an adjustment, `-` and that of
 * a reversal, or `+` and the kind of a grant that is no purchase. `"`: as in the line above.
 * The balance after each follows from the account's `balance` and the amounts of the lines above it.
 */
export interface Checkpoint extends Record<keyof typeof CHECKPOINT_NUMBERS, number> {
  /** Id of the last of these entries. */
  entry: string;
  tail: TailEntry[];
}

export type TailEntry = Pick<
  LedgerEntry,
  "streamId" | "atMs" | "type" | "amount" | "balanceAfter" | "endpoint" | "reason" | "taskId" | "kind"
>;

/** How what an entry was for begins, if no request made it. */
const BY_HAND = new Map([
  ["=", "adjustment"],
  ["-", "reversal"],
  ["+", "grant"],
]);

/** In the place of what an entry was for: the same as in the line above. */
const DITTO = '"';

const NAMES = Object.keys(CHECKPOINT_NUMBERS) as (keyof typeof CHECKPOINT_NUMBERS)[];

export function checkpointOf(text: string): Checkpoint | undefined {
  if (text === "") return undefined;
  const [first = "", ...lines] = text.split("\n");
  const pairs = first.matchAll(/(\S+) (\S+)/g);
  const values = new Map(Array.from(pairs, ([, name, value]) => [name, value]));
  const numbers = Object.fromEntries(NAMES.map((name) => [name, Number(values.get(name) ?? 0)]));
  return {
    ...(numbers as Record<keyof typeof CHECKPOINT_NUMBERS, number>),
    entry: values.get("entry") ?? "",
    tail: tailOf(lines, Number(values.get("balance") ?? 0)),
  };
}

/** @param balance after the first of them */
function tailOf(lines: readonly string[], balance: number): TailEntry[] {
  const tail: TailEntry[] = [];
  let [balanceAfter, above] = [balance, ""];
  for (const line of lines) {
    const [, place = "", letter, amount, what = ""] = /^(\S+) (\S+) (\S+) ?(.*)$/.exec(line) ?? [];
    if (what !== DITTO) above = what;
    const entry = tailEntry(place, letter === "c" ? "consume" : "recharge", above);
    tail.push({ ...entry, amount: Number(amount), balanceAfter });
    balanceAfter -= Number(amount);
  }
  return tail;
}

function tailEntry(place: string, type: string, what: string): Omit<TailEntry, "amount" | "balanceAfter"> {
  const [id = "", at] = place.split("@");
  const [ms, sequence = "0"] = id.split("-");
  const [first = "", ...rest] = what.split(" ");
  const byHand = BY_HAND.get(first);
  const isCharge = type === "consume" && byHand === undefined;
  const text = rest.join(" ");
  return {
    streamId: `${ms}-${sequence}`,
    atMs: Number(at ?? ms),
    type: first === COMPLETED_LATE && !isCharge ? RECLAIM : type,
    kind: byHand === "grant" ? text : byHand === "reversal" ? byHand : "",
    endpoint: isCharge ? what : "",
    reason: byHand === "grant" || isCharge ? "" : byHand === undefined ? first : text,
    taskId: isCharge || byHand !== undefined ? "" : text,
  };
}

export const entryOfTail = (partition: number, accountId: string, entry: TailEntry): LedgerEntry => ({
  partition,
  accountId,
  requestId: "",
  keyId: "",
  reference: "",
  by: "",
  note: "",
  details: "",
  previous: "",
  ...entry,
});

export const readCheckpoint = async (
  redis: Redis,
  partition: number,
  accountId: string,
): Promise<Checkpoint | undefined> =>
  checkpointOf((await redis.get(accountNames(partition, accountId).checkpoint)) ?? "");

export interface Cut {
  /** Id of the last entry that has left it; `LEDGER_START` if none has. */
  lastEntry: string;
  /** When that entry was made, Unix ms; 0 if none has left. Redis has all entries that are younger. */
  atMs: number;
}

export async function readCut(redis: Redis, partition: number): Promise<Cut> {
  const [lastEntry, atMs] = await redis.hmget(partitionNames(partition).trimmed, "last_entry", "at");
  return { lastEntry: lastEntry ?? LEDGER_START, atMs: Number(atMs ?? 0) };
}
