import { verifyLedger } from "../../../src/ledger/verify.ts";
import { type Checkpoint, readCheckpoint, readCut } from "../../../src/store/checkpoints.ts";
import {
  LEDGER_PAGE,
  LEDGER_START,
  type LedgerEntry,
  readLedger,
} from "../../../src/store/ledger-entries.ts";
import { accountNames, partitionOf } from "../../../src/store/names.ts";
import type { Told } from "./load.ts";
import { PARTITIONS, type World } from "./world.ts";

/** What archive and Redis have together, beside what clients were told. */
export interface Verdict {
  /** Entries in the archive, in Redis, and of those in Redis how many the archive lacks. */
  archived: number;
  inRedis: number;
  uncopied: number;
  /** Each in words. */
  missing: string[];
  doubled: string[];
  wrongFolds: string[];
}

interface ArchivedRow {
  partition: number;
  id: string;
  account_id: string;
  type: string;
  amount: string;
  balance_after: string;
  reason: string | null;
  task_id: string | null;
  request_id: string | null;
  reference: string | null;
  previous: string | null;
}

type Entry = Pick<
  LedgerEntry,
  "partition" | "streamId" | "accountId" | "type" | "amount" | "balanceAfter" | "reason" | "taskId"
> &
  Pick<LedgerEntry, "requestId" | "reference" | "previous">;

const ARCHIVED = "SELECT * FROM tollgate.ledger_entries ORDER BY partition, id_ms, id_number";

export async function judge(world: World, told: Told): Promise<Verdict> {
  const archived = (await world.query<ArchivedRow>(ARCHIVED)).map(entryOfRow);
  const stored = await storedEntries(world);
  const place = ({ partition, streamId }: Entry): string => `${partition}:${streamId}`;
  const inArchive = new Map(archived.map((entry) => [place(entry), entry]));
  const uncopied = stored.filter((entry) => !inArchive.has(place(entry)));
  // Uncopied entries are younger than what is copied of their partition, so the order is right for each account.
  const all = [...archived, ...uncopied];
  const verdict: Verdict = {
    archived: archived.length,
    inRedis: stored.length,
    uncopied: uncopied.length,
    missing: missingOf(all, told),
    doubled: doubledOf(all),
    wrongFolds: stored.flatMap((entry) => {
      const copy = inArchive.get(place(entry));
      return copy && copy.balanceAfter !== entry.balanceAfter
        ? [`${place(entry)} differs in the archive`]
        : [];
    }),
  };
  for (const { accountId } of world.customers) {
    const own = all.filter((entry) => entry.accountId === accountId);
    verdict.wrongFolds.push(...(await wrongFoldsOf(world, accountId, own)));
  }
  const { violations } = await verifyLedger(world.nodes);
  verdict.wrongFolds.push(
    ...violations.map(({ account_id, message }) => `ledger verify: ${account_id} ${message}`),
  );
  return verdict;
}

const entryOfRow = (row: ArchivedRow): Entry => ({
  partition: row.partition,
  streamId: row.id,
  accountId: row.account_id,
  type: row.type,
  amount: Number(row.amount),
  balanceAfter: Number(row.balance_after),
  reason: row.reason ?? "",
  taskId: row.task_id ?? "",
  requestId: row.request_id ?? "",
  reference: row.reference ?? "",
  previous: row.previous ?? "",
});

async function storedEntries({ redis }: World): Promise<LedgerEntry[]> {
  const all: LedgerEntry[] = [];
  for (let partition = 0; partition < PARTITIONS; partition++) {
    let page: LedgerEntry[];
    let after = LEDGER_START;
    do {
      page = await readLedger(redis, partition, after);
      all.push(...page);
      after = page.at(-1)?.streamId ?? after;
    } while (page.length === LEDGER_PAGE);
  }
  return all;
}

/** Gaps in the chains of accounts, and what clients were told that is nowhere. */
function missingOf(all: readonly Entry[], told: Told): string[] {
  const missing: string[] = [];
  const last = new Map<string, string>();
  for (const { accountId, streamId, previous } of all) {
    if (previous !== (last.get(accountId) ?? ""))
      missing.push(`${accountId}: ${previous}, before ${streamId}`);
    last.set(accountId, streamId);
  }
  const charged = new Set(all.filter(({ type }) => type === "consume").map(({ taskId }) => taskId));
  const refunded = new Set(all.filter(({ reason }) => reason === "refund").map(({ taskId }) => taskId));
  const granted = new Set(
    all.map(({ accountId, reference, amount }) => `${accountId} ${reference} ${amount}`),
  );
  for (const taskId of told.charged.keys()) if (!charged.has(taskId)) missing.push(`the charge of ${taskId}`);
  for (const taskId of told.failed) if (!refunded.has(taskId)) missing.push(`the refund of ${taskId}`);
  for (const [reference, { accountId, credits }] of told.granted)
    if (!granted.has(`${accountId} ${reference} ${credits}`)) missing.push(`the grant ${reference}`);
  return missing;
}

/** Requests that are charged or refunded twice, grants that count twice, and rows of the same entry. */
function doubledOf(all: readonly Entry[]): string[] {
  const seen = new Set<string>();
  const doubled: string[] = [];
  for (const { partition, streamId, accountId, type, requestId, reference } of all) {
    const names = [`entry ${partition}:${streamId}`];
    if (requestId !== "") names.push(`${type} of ${requestId}`);
    if (reference !== "") names.push(`grant ${accountId} ${reference}`);
    for (const name of names) {
      if (seen.has(name)) doubled.push(name);
      seen.add(name);
    }
  }
  return doubled;
}

/** Balance, total used, checkpoint and sum of the archive of one account, compared with all its entries. */
async function wrongFoldsOf(world: World, accountId: string, own: readonly Entry[]): Promise<string[]> {
  const { redis } = world;
  const partition = partitionOf(accountId, PARTITIONS);
  const record = await redis.hgetall(accountNames(partition, accountId).account);
  const sum = (some: readonly Entry[]): number => some.reduce((total, { amount }) => total + amount, 0);
  const used = -sum(own.filter(({ type, reason }) => type === "consume" || reason === "refund"));
  const wrong: string[] = [];
  const compare = (what: string, found: unknown, expected: unknown): void => {
    if (String(found) !== String(expected))
      wrong.push(`${accountId}: ${what} ${found}, by its entries ${expected}`);
  };
  compare("balance", record.balance, sum(own));
  compare("total used", record.total_used, used);
  compare("last entry", record.last_entry, own.at(-1)?.streamId);
  const checkpoint = await readCheckpoint(redis, partition, accountId);
  if (checkpoint) compareCheckpoint(checkpoint, own, compare);
  const { lastEntry } = await readCut(redis, partition);
  const left = own.filter(({ streamId }) => streamId === checkpoint?.entry);
  if (checkpoint && left.length !== 1)
    wrong.push(`${accountId}: no entry ${checkpoint.entry} before ${lastEntry}`);
  return wrong;
}

function compareCheckpoint(
  checkpoint: Checkpoint,
  own: readonly Entry[],
  compare: (what: string, found: unknown, expected: unknown) => void,
): void {
  const folded = own.slice(0, own.findIndex(({ streamId }) => streamId === checkpoint.entry) + 1);
  const sumOf = (is: (entry: Entry) => boolean): number =>
    folded.filter(is).reduce((total, { amount }) => total + Math.abs(amount), 0);
  compare("checkpoint's balance", checkpoint.balance, folded.at(-1)?.balanceAfter);
  compare("checkpoint's entries", checkpoint.entries, folded.length);
  compare(
    "checkpoint's charges",
    checkpoint.consumed,
    sumOf(({ type }) => type === "consume"),
  );
  compare(
    "checkpoint's refunds",
    checkpoint.refunded,
    sumOf(({ reason }) => reason === "refund"),
  );
  compare(
    "checkpoint's grants",
    checkpoint.recharged,
    sumOf(({ type, reason }) => type !== "consume" && reason === ""),
  );
  compare(
    "checkpoint's references",
    checkpoint.references,
    folded.filter(({ reference }) => reference !== "").length,
  );
  const tail = folded
    .slice(-10)
    .reverse()
    .map(({ streamId }) => streamId);
  compare(
    "checkpoint's tail",
    checkpoint.tail.map(({ streamId }) => streamId),
    tail,
  );
}
