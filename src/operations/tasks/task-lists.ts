import { createHash } from "node:crypto";
import type { Redis } from "ioredis";
import { parseObject } from "../../domain/json.ts";
import {
  badCursor,
  cursorOf,
  type PageQuery,
  type Period,
  positionOf,
  requirePageSize,
} from "../../records/cursors.ts";
import { kindOf, type LedgerEntry, RECLAIM } from "../../records/ledger-entries.ts";
import { accountNames, dueRange, partitionNames, requestName } from "../../records/names.ts";
import { type RequestRecord, requestOf } from "../../records/records.ts";
import { many, membersOf, pairsOf } from "../../redis/pipelines.ts";
import type { RedisNodes } from "../../redis/store-facts.ts";
import { requireOrder } from "../access/operator-values.ts";
import { requireAccount } from "../accounts/accounts.ts";
import { type ArchivedHistory, readHistory } from "../credits/account-history.ts";

export interface TaskQuery extends PageQuery, Period {
  status?: ListedStatus | undefined;
  endpoint?: string | undefined;
}

export interface TaskPage {
  tasks: TaskView[];
  next: string | undefined;
  reachesBackToMs?: number | undefined;
}

export type ArchivedRequests = (
  requestIds: readonly string[],
) => Promise<
  Map<string, Pick<TaskView, "status" | "createdAtMs" | "boundAtMs" | "finishedAtMs" | "refunded">>
>;

const LOOKED_AT_MAX = 1000;
const SLICE = 100;
const CHARGE_PAGES_MAX = 6;

/** Charges wait while Redis is away, and of an unknown outcome until the upstream calls back. */
const CHARGED_LATER_MS = 86_400_000;
/** A task ends at twice `tasks.max_age`, four hours by default. */
const REFUNDED_LATER_MS = 86_400_000;

/**
 * Open tasks first, in no order, then charged ones, newest first; void ones only if asked for. Pages may be short, even empty, and a task
 * that changes meanwhile may come twice. Forgotten ones come from the archive, else the ledger: a refund with a reference is one of a
 * completed task. With `toMs`, a task that failed a day after its charge may then count as completed. @throws OperatorError
 */
export async function listTasks(
  nodes: RedisNodes,
  accountId: string,
  query: TaskQuery,
  archive?: { history: ArchivedHistory; requests: ArchivedRequests },
): Promise<TaskPage> {
  const { status, endpoint, fromMs, toMs, cursor, limit } = query;
  requirePageSize(limit);
  requireOrder(fromMs, toMs);
  const list = ["tasks", accountId, status, endpoint, fromMs, toMs];
  const { partition, redis } = await requireAccount(nodes, accountId);
  const source = { redis, partition, accountId, query, archive };
  let position: Position | undefined =
    cursor === undefined ? firstPosition(status) : readPosition(positionOf(list, cursor));
  const tasks: TaskView[] = [];
  let reachesBackToMs: number | undefined;
  for (let turn = 0; position && tasks.length < limit && turn < 4; turn++) {
    const most = limit - tasks.length;
    const page: Part =
      position.of === "charges"
        ? await chargedTasks(source, position, most)
        : await listedTasks(source, position, most);
    tasks.push(...page.tasks);
    const next: Position | undefined = page.next ?? nextList(position, status);
    reachesBackToMs = page.reachesBackToMs;
    // A page that reached its bound ends here.
    if (page.next && page.tasks.length < most) return pageOf(tasks, next);
    position = next;
  }
  return pageOf(tasks, position);

  function pageOf(found: TaskView[], at: Position | undefined): TaskPage {
    return { tasks: found, next: at && cursorOf(list, JSON.stringify(at)), reachesBackToMs };
  }
}

interface Part {
  tasks: TaskView[];
  next: Position | undefined;
  reachesBackToMs?: number | undefined;
}

interface Source {
  redis: Redis;
  partition: number;
  accountId: string;
  query: TaskQuery;
  archive: { history: ArchivedHistory; requests: ArchivedRequests } | undefined;
}

async function listedTasks(source: Source, from: ListPosition, most: number): Promise<Part> {
  const { redis, partition, accountId, query } = source;
  const name = partitionNames(partition)[from.of === "done" ? "done" : "due"];
  const to = from.of === "done" ? "+inf" : dueRange(from.of)[1];
  const tasks: TaskView[] = [];
  let next = from;
  for (let lookedAt = 0; lookedAt < LOOKED_AT_MAX && tasks.length < most; lookedAt += SLICE) {
    const flat = await redis.zrange(
      ...([name, next.score, to, "BYSCORE", "LIMIT", next.times, SLICE, "WITHSCORES"] as const),
    );
    if (flat.length === 0) return { tasks, next: undefined };
    const records = await readRecords(redis, partition, membersOf(flat));
    for (const [requestId, score] of pairsOf(flat)) {
      next = { ...next, score, times: score === next.score ? next.times + 1 : 1 };
      const task = taskView(requestId, records.get(requestId));
      const isOfList = from.of === "done" ? task?.status === "void" : task?.status === OPEN_STATUS[from.of];
      if (task && isOfList && task.accountId === accountId && isAsked(task, query)) tasks.push(task);
      if (tasks.length === most) break;
    }
  }
  return { tasks, next };
}

const OPEN_STATUS = { holds: "held", polls: "processing" } as const;

async function chargedTasks(source: Source, from: ChargePosition, most: number): Promise<Part> {
  const { redis, partition, accountId, query, archive } = source;
  const { endpoint, fromMs, toMs } = query;
  const filter = {
    wanted: ["consume/charge", "recharge/refund", `${RECLAIM}/refund`],
    endpoint,
    fromMs,
    toMs: toMs === undefined ? undefined : toMs + CHARGED_LATER_MS,
    refundsToMs: toMs === undefined ? undefined : toMs + CHARGED_LATER_MS + REFUNDED_LATER_MS,
  };
  const refunds = new Set(from.refunds);
  const tasks: TaskView[] = [];
  let page: Awaited<ReturnType<typeof readHistory>> | undefined;
  for (let pages = 0; pages < CHARGE_PAGES_MAX && tasks.length < most; pages++) {
    const position = page ? page.next : from.at;
    if (page && position === undefined) break;
    const limit = most - tasks.length;
    const options = { redis, partition, accountId, filter, position, limit };
    page = await readHistory({ ...options, archive: archive?.history });
    const found = await asTasks(source, chargesIn(page.entries, refunds));
    tasks.push(...found.filter((task) => isAsked(task, query)));
    // It has read as many entries as it may.
    if (page.entries.length < limit) break;
  }
  const next = page?.next && {
    of: "charges" as const,
    at: page.next,
    refunds: [...refunds].slice(-REFUNDS_MAX),
  };
  return { tasks, next: next || undefined, reachesBackToMs: page?.reachesBackToMs };
}

interface Charge {
  entry: LedgerEntry;
  hasFailed: boolean;
}

/** Newest first: a refund comes before its charge, and what took it back before the refund. The unmatched ones stay in `refunds`. */
function chargesIn(entries: readonly LedgerEntry[], refunds: Set<string>): Charge[] {
  const charges: Charge[] = [];
  for (const entry of entries) {
    const digest = createHash("sha256").update(entry.requestId).digest("base64url").slice(0, REFUND_DIGEST);
    if (kindOf(entry) === "refund") {
      if (entry.type === RECLAIM) refunds.add(TAKEN_BACK + digest);
      else if (!refunds.delete(TAKEN_BACK + digest) && entry.reference === "") refunds.add(digest);
    } else charges.push({ entry, hasFailed: refunds.delete(digest) });
  }
  return charges;
}

async function asTasks(source: Source, charges: readonly Charge[]): Promise<TaskView[]> {
  const { redis, partition, accountId, archive } = source;
  const ids = charges.map(({ entry }) => entry.requestId).filter((id) => id !== "");
  const records = await readRecords(redis, partition, ids);
  const forgotten = ids.filter((id) => records.get(id)?.state === undefined);
  const archived = archive && forgotten.length > 0 ? await archive.requests(forgotten) : undefined;
  const byOperator = await refundedByOperator(source, forgotten);
  return charges.flatMap(({ entry, hasFailed }): TaskView[] => {
    const task = taskView(entry.requestId, records.get(entry.requestId));
    // An open task was listed before.
    if (task) return isEnded(task) ? [task] : [];
    const { requestId, taskId, keyId, endpoint, amount, atMs } = entry;
    const known = archived?.get(requestId);
    return [
      {
        ...{ requestId, taskId: taskId || undefined, accountId, keyId, endpoint, price: 0 - amount },
        status: hasFailed ? "failed" : "completed",
        ...{ createdAtMs: undefined, boundAtMs: atMs, finishedAtMs: undefined },
        ...known,
        refunded: byOperator.has(requestId) || (known?.refunded ?? hasFailed),
      },
    ];
  });
}

/** Without those whose price was corrected, of which a part went back. */
async function refundedByOperator(
  { redis, partition, accountId }: Source,
  requestIds: readonly string[],
): Promise<Set<string>> {
  if (requestIds.length === 0) return new Set();
  const { refunds, references } = accountNames(partition, accountId);
  const found = await redis.hmget(refunds, ...requestIds);
  const refunded = requestIds.flatMap((id, at) => (found[at] == null ? [] : [{ id, reference: found[at] }]));
  if (refunded.length === 0) return new Set();
  const uses = await redis.hmget(references, ...refunded.map(({ reference }) => reference));
  // After 400 days Redis forgets what a reference stands for; that of a correction ends with the request.
  const isRefund = ({ id, reference }: (typeof refunded)[number], at: number): boolean =>
    uses[at] == null ? !reference.endsWith(` ${id}`) : uses[at] === `refund ${id}`;
  return new Set(refunded.filter(isRefund).map(({ id }) => id));
}

const isEnded = ({ status }: TaskView): boolean => status === "completed" || status === "failed";

async function readRecords(
  redis: Redis,
  partition: number,
  requestIds: readonly string[],
): Promise<Map<string, RequestRecord>> {
  const records = await many<string | null, string>(redis, requestIds, (pipe, id) =>
    pipe.get(requestName(partition, id)),
  );
  return new Map(requestIds.map((id, at) => [id, requestOf(records[at])]));
}

function isAsked(task: TaskView, { status, endpoint, fromMs, toMs }: TaskQuery): boolean {
  const atMs = task.createdAtMs ?? task.boundAtMs ?? 0;
  if (status !== undefined && task.status !== status) return false;
  if (endpoint !== undefined && task.endpoint !== endpoint) return false;
  return (fromMs === undefined || atMs >= fromMs) && (toMs === undefined || atMs < toMs);
}

/** Digests of refunds in a cursor whose charges come on a later page. */
const REFUNDS_MAX = 400;
const REFUND_DIGEST = 6;
/** Before the digest of a refund that was taken back. */
const TAKEN_BACK = "!";
/** More than become due in one millisecond. */
const SAME_SCORE_MAX = 10_000_000;

/** In a list of the partition by score, or along the account's charges. */
type Position = ListPosition | ChargePosition;

interface ListPosition {
  of: "holds" | "polls" | "done";
  /** The last score, and how many requests of that score were read. */
  score: string;
  times: number;
}

interface ChargePosition {
  of: "charges";
  /** Undefined at the newest entry. */
  at?: string | undefined;
  /** Requests of failed tasks whose charge comes later. */
  refunds: string[];
}

const startOf = (of: ListPosition["of"]): ListPosition => ({
  of,
  score: of === "done" ? "-inf" : dueRange(of)[0],
  times: 0,
});
const CHARGES: ChargePosition = { of: "charges", refunds: [] };

function firstPosition(status: ListedStatus | undefined): Position {
  if (status === "void") return startOf("done");
  if (status === "processing") return startOf("polls");
  return status === "completed" || status === "failed" ? CHARGES : startOf("holds");
}

function nextList({ of }: Position, status: ListedStatus | undefined): Position | undefined {
  if (status !== undefined) return undefined;
  if (of === "holds") return startOf("polls");
  return of === "polls" ? CHARGES : undefined;
}

/** @throws OperatorError for an invalid position */
function readPosition(text: string): Position {
  const { of, score, times, at, refunds } = parseObject(text) ?? {};
  if (of === "charges" && at === undefined) return CHARGES;
  if (of === "charges" && typeof at === "string" && areDigests(refunds)) return { of, at, refunds };
  const isScore = typeof score === "string" && /^(-inf|\d{1,16})$/.test(score);
  if ((of === "holds" || of === "polls" || of === "done") && isScore && isCount(times))
    return { of, score, times };
  throw badCursor();
}

const isCount = (value: unknown): value is number =>
  Number.isInteger(value) && Number(value) >= 0 && Number(value) <= SAME_SCORE_MAX;

const areDigests = (value: unknown): value is string[] =>
  Array.isArray(value) &&
  value.length <= REFUNDS_MAX &&
  value.every((one) => typeof one === "string" && one.length <= TAKEN_BACK.length + REFUND_DIGEST);

/** `held`: sent to the upstream, no task yet. `void`: ended without a task. */
export const LISTED_STATUSES = ["held", "processing", "completed", "failed", "void"] as const;
type ListedStatus = (typeof LISTED_STATUSES)[number];

export interface TaskView {
  requestId: string;
  taskId: string | undefined;
  accountId: string;
  keyId: string;
  endpoint: string;
  price: number;
  status: ListedStatus;
  createdAtMs: number | undefined;
  boundAtMs: number | undefined;
  finishedAtMs: number | undefined;
  refunded: boolean;
}

export function taskView(requestId: string, record: RequestRecord = {}): TaskView | undefined {
  const { state, account_id: accountId, status } = record;
  if (state === undefined || accountId === undefined) return undefined;
  const isVoid = state === "void";
  const time = (text: string | undefined): number | undefined =>
    text === undefined ? undefined : Number(text);
  return {
    requestId,
    accountId,
    taskId: record.task_id,
    keyId: record.key_id ?? "",
    endpoint: record.endpoint ?? "",
    price: record.uncollected ? 0 : Number(record.price ?? 0),
    status: state === "held" ? "held" : isVoid ? "void" : state === "bound" ? "processing" : endOf(status),
    createdAtMs: time(record.admitted_at ?? record.bound_at),
    boundAtMs: time(record.bound_at),
    finishedAtMs: time(isVoid ? record.void_at : record.finished_at),
    refunded: record.refunded === "1" && record.charged_again === undefined,
  };
}

const endOf = (status: string | undefined): ListedStatus => (status === "completed" ? "completed" : "failed");
