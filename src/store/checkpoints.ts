import type { Redis } from "ioredis";
import { LEDGER_START, type LedgerEntry } from "./ledger-entries.ts";
import { accountNames, partitionNames } from "./names.ts";

/** What the numbers of a checkpoint are, in the order in which they are written. */
export const CHECKPOINT_NUMBERS = {
  balance: "after the last of these entries",
  entries: "how many there are",
  recharged: "credits of grants",
  consumed: "credits of charges, positive",
  refunded: "credits of refunds",
  references: "entries under a reference",
  referenced: "credits of the grants among them",
  forgotten: "of these references, how many are in the archive alone",
  forgotten_credits: "credits of the grants among these",
  adjusted: "credits of adjustments, those downwards negative",
} as const;

/**
 * `tg:{pNN}:checkpoint:<account id>`: what the entries of an account add up to that have left the ledger, and the latest ten
 * of them. Written by lua/include/checkpoint.lua; redis-cli shows, for an account of which two entries have left,
 *
 *     entry 1790000000001-0 balance 90 entries 2 recharged 100 consumed 10 refunded 0 references 1 referenced 100 forgotten 0 forgotten_credits 0 adjusted 0
 *     1790000000001-0 1790000000001 consume -10 90 /api/v1/gen2/text-to-video
 *     1790000000000-0 1790000000000 recharge 100 100
 *
 * The numbers are in `CHECKPOINT_NUMBERS`. The other lines are entries, most recent first: id, when it was made (Unix ms),
 * type, amount, balance after it, then the endpoint of a charge, reason and task id of a refund, or `=` and the reason of an
 * adjustment.
 */
export interface Checkpoint extends Record<keyof typeof CHECKPOINT_NUMBERS, number> {
  /** Id of the last of these entries. */
  entry: string;
  /** The latest of them, most recent first. */
  tail: TailEntry[];
}

/** An entry in a checkpoint, with what customers see of it. */
export type TailEntry = Pick<
  LedgerEntry,
  "streamId" | "atMs" | "type" | "amount" | "balanceAfter" | "endpoint" | "reason" | "taskId"
>;

const NAMES = Object.keys(CHECKPOINT_NUMBERS) as (keyof typeof CHECKPOINT_NUMBERS)[];

/** Reads a checkpoint; undefined for the empty text, which stands for none. */
export function checkpointOf(text: string): Checkpoint | undefined {
  if (text === "") return undefined;
  const [first = "", ...tail] = text.split("\n");
  const words = first.split(" ");
  const value = (name: string): string => words[words.indexOf(name) + 1] ?? "";
  const numbers = Object.fromEntries(NAMES.map((name) => [name, Number(value(name))]));
  return {
    ...(numbers as Record<keyof typeof CHECKPOINT_NUMBERS, number>),
    entry: value("entry"),
    tail: tail.filter((line) => line !== "").map(tailEntry),
  };
}

/** The text of a checkpoint, as lua/include/checkpoint.lua writes it. */
export function checkpointText(checkpoint: Checkpoint): string {
  const numbers = NAMES.map((name) => `${name} ${checkpoint[name]}`).join(" ");
  return [`entry ${checkpoint.entry} ${numbers}`, ...checkpoint.tail.map(tailLine)].join("\n");
}

function tailEntry(line: string): TailEntry {
  const [streamId = "", atMs, type = "", amount, balanceAfter, ...what] = line.split(" ");
  const isAdjustment = what[0] === "=";
  const isCharge = type === "consume" && !isAdjustment;
  const reason = isAdjustment ? what.slice(1).join(" ") : (what[0] ?? "");
  return {
    streamId,
    atMs: Number(atMs),
    type,
    amount: Number(amount),
    balanceAfter: Number(balanceAfter),
    endpoint: isCharge ? what.join(" ") : "",
    reason: isCharge ? "" : reason,
    taskId: isCharge || isAdjustment ? "" : what.slice(1).join(" "),
  };
}

function tailLine({ streamId, atMs, type, amount, balanceAfter, ...what }: TailEntry): string {
  const { endpoint, reason, taskId } = what;
  const isAdjustment = endpoint === "" && taskId === "" && reason !== "";
  const rest = isAdjustment ? `= ${reason}` : type === "consume" ? endpoint : `${reason} ${taskId}`;
  return `${streamId} ${atMs} ${type} ${amount} ${balanceAfter} ${rest}`.trimEnd();
}

/** An entry of a checkpoint as a ledger entry; what only the archive has of it is empty. */
export const entryOfTail = (partition: number, accountId: string, entry: TailEntry): LedgerEntry => ({
  partition,
  accountId,
  requestId: "",
  keyId: "",
  reference: "",
  by: "",
  note: "",
  previous: "",
  ...entry,
});

/** The checkpoint of an account; undefined if all its entries are in the ledger. */
export const readCheckpoint = async (
  redis: Redis,
  partition: number,
  accountId: string,
): Promise<Checkpoint | undefined> =>
  checkpointOf((await redis.get(accountNames(partition, accountId).checkpoint)) ?? "");

/** Where a partition's ledger begins. */
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
