import type { Redis } from "ioredis";
import { API_PREFIX } from "../domain/endpoints.ts";
import { multipliedPrice } from "../domain/money.ts";
import { requireEndpoint, requireOrder } from "../operations/access/operator-values.ts";
import {
  fromArchive,
  oncePerReference,
  otherUse,
  type ReadArchived,
  requireReason,
  requireReference,
} from "../operations/credits/references.ts";
import type { Actor } from "../records/actor.ts";
import { type Cut, readCut } from "../records/checkpoints.ts";
import { cursorOf, positionOf } from "../records/cursors.ts";
import {
  compareIds,
  detailsOf,
  kindOf,
  LEDGER_START,
  type LedgerEntry,
  RECLAIM,
  readLedger,
} from "../records/ledger-entries.ts";
import { accountNames, requestName } from "../records/names.ts";
import { OperatorError } from "../records/operator-error.ts";
import { requestOf } from "../records/records.ts";
import { many } from "../redis/pipelines.ts";
import { scriptsOf } from "../redis/script-runner.ts";
import { partitionsOf, type RedisNodes } from "../redis/store-facts.ts";
import { correct } from "../scripts/credit-changes.ts";

/** A reference of each charge follows from that of the call. */
const REFERENCE_CHARS_MAX = 150;
/** Then the answer names where the next call goes on. */
const CHARGES_MAX = 5000;
const SHOWN_MAX = 100;
/** Ids follow the server's clock, which may have been put back. */
export const CLOCK_SLACK_MS = 60_000;
/** Copying and trimming may go on meanwhile. */
const READS_MAX = 3;

/** A list price that was in force by mistake, and what it should have been. */
interface WrongPrice {
  endpoint: string;
  charged: number;
  correct: number;
}

export interface CorrectionTerms {
  /** Unix ms, itself included. */
  fromMs: number;
  /** Itself not included. */
  toMs: number;
  prices: readonly WrongPrice[];
  /** Only charges by this price file; all when left out. */
  priceList?: string | undefined;
  reference: string;
  reason: string;
  isDryRun: boolean;
  cursor?: string | undefined;
}

interface WrongCharge {
  entry: LedgerEntry;
  credits: number;
}

interface ArchivedCharges {
  charges: readonly LedgerEntry[];
  /** Ids of requests among these that were refunded, and not charged again. */
  refunded: ReadonlySet<string>;
  /** The newest entry of the partition in the archive. */
  archivedTo: string;
}

/** From `fromMs` until before `toMs`, by endpoint and list price, or amount. @throws Error if the archive is unavailable, another store's, or incomplete */
export type FindArchivedCharges = (
  nodes: RedisNodes,
  partition: number,
  of: { fromMs: number; toMs: number; charged: readonly { endpoint: string; price: number }[] },
) => Promise<ArchivedCharges>;

export interface CorrectionLookUps {
  readArchived?: ReadArchived | undefined;
  findCharges?: FindArchivedCharges | undefined;
}

interface Corrections {
  /** Charges of this call that were wrong, and were not given back before. */
  charges: number;
  corrected: number;
  /** By an earlier call with this reference. */
  repeated: number;
  /** Nothing is left to give back, or another reference has. */
  refunded: number;
  /** Their tasks have not ended: repeat the call later. */
  running: number;
  /** Given back by this call; in a dry run, what would be. */
  credits: number;
  shown: readonly WrongCharge[];
  next: string | undefined;
}

/**
 * Gives back what was charged too much, once per charge, however often it is called. @throws OperatorError `invalid`,
 * `unknown_endpoint`; `unavailable` if the archive is needed and cannot be used
 */
export async function correctCharges(
  nodes: RedisNodes,
  terms: CorrectionTerms,
  actor: Actor,
  { readArchived, findCharges }: CorrectionLookUps = {},
): Promise<Corrections> {
  const { reference, cursor } = terms;
  const rightPrices = rightPricesOf(terms.prices);
  const wanted = { ...terms, reason: requireReason(terms.reason), rightPrices, findCharges };
  requireOrder(terms.fromMs, terms.toMs);
  requireReference(reference);
  if (reference.length > REFERENCE_CHARS_MAX)
    throw new OperatorError(
      `a reference of corrections has at most ${REFERENCE_CHARS_MAX} characters`,
      "invalid",
      "reference",
    );
  if (!terms.isDryRun) nodes.requireWritable?.(nodes.all());
  const list = ["corrections", reference];
  let partition = cursor === undefined ? 0 : Number(positionOf(list, cursor));
  const partitions = await partitionsOf(nodes);
  const found = { corrected: 0, repeated: 0, refunded: 0, running: 0, credits: 0 };
  let all: WrongCharge[] = [];
  let outcomes: Outcome[] = [];
  for (; partition < partitions && all.length < CHARGES_MAX; partition++) {
    const { wrong, refunded } = await wrongCharges(nodes, partition, wanted);
    found.refunded += refunded;
    all = all.concat(wrong);
    // A reference that Redis knows with another price is refused before anything is given back.
    outcomes = outcomes.concat(await foreseen(nodes.of(partition), wrong, reference));
  }
  for (const [at, one] of all.entries()) {
    const outcome = terms.isDryRun
      ? outcomes[at]!
      : await correctOne(nodes, one, wanted, actor, readArchived);
    found[outcome]++;
    if (outcome === "corrected") found.credits += one.credits;
  }
  const corrected = terms.isDryRun ? 0 : found.corrected;
  const next = partition < partitions ? cursorOf(list, String(partition)) : undefined;
  return { ...found, charges: all.length, corrected, shown: all.slice(0, SHOWN_MAX), next };
}

/** List prices by path and wrong list price. */
function rightPricesOf(prices: readonly WrongPrice[]): ReadonlyMap<string, number> {
  const rightPrices = new Map<string, number>();
  for (const [at, { endpoint: text, charged, correct: right }] of prices.entries()) {
    const endpoint = requireEndpoint(text, `prices/${at}/endpoint`);
    const name = `${API_PREFIX}${endpoint} ${charged}`;
    if (rightPrices.has(name))
      throw new OperatorError(`${endpoint} at ${charged} is listed twice`, "invalid", `prices/${at}`);
    if (right >= charged)
      throw new OperatorError(
        "correct must be less than charged: what was too little is not taken afterwards",
        "invalid",
        `prices/${at}/correct`,
      );
    rightPrices.set(name, right);
  }
  return rightPrices;
}

type Wanted = CorrectionTerms & {
  rightPrices: ReadonlyMap<string, number>;
  findCharges: FindArchivedCharges | undefined;
};

interface WrongCharges {
  wrong: WrongCharge[];
  refunded: number;
}

/** Of charges whose record was collected only the ledger knows whether they were refunded. */
async function wrongCharges(nodes: RedisNodes, partition: number, wanted: Wanted): Promise<WrongCharges> {
  for (let reads = 1; reads <= READS_MAX; reads++) {
    const before = await readCut(nodes.of(partition), partition);
    const archived = isCutAfter(before, wanted) ? await archivedCharges(nodes, partition, wanted) : undefined;
    const found = await chargesInRedis(nodes, partition, wanted, archived);
    // Entries that leave Redis between the two reads would be in neither.
    const cut = await readCut(nodes.of(partition), partition);
    if (archived ? compareIds(cut.lastEntry, archived.archivedTo) <= 0 : !isCutAfter(cut, wanted))
      return found;
  }
  throw new OperatorError(
    "entries are leaving Redis; repeat the call with the same reference",
    "unavailable",
  );
}

/** True if entries from that time on may have left Redis. */
const isCutAfter = ({ lastEntry, atMs }: Cut, { fromMs }: Wanted): boolean =>
  lastEntry !== LEDGER_START && atMs >= fromMs;

async function archivedCharges(
  nodes: RedisNodes,
  partition: number,
  { fromMs, toMs, rightPrices, findCharges }: Wanted,
): Promise<ArchivedCharges> {
  const gone = "charges of that time have left Redis for the archive";
  if (!findCharges)
    throw new OperatorError(`${gone}; set ARCHIVE_URL and run this again`, "unavailable", "from");
  const charged = Array.from(rightPrices.keys(), (name) => {
    const [endpoint = "", price] = name.split(" ");
    return { endpoint, price: Number(price) };
  });
  return fromArchive(
    () => findCharges(nodes, partition, { fromMs, toMs, charged }),
    (why) => `${gone}, which cannot be used (${why}); repeat the call later, with the same reference`,
    "from",
  );
}

async function chargesInRedis(
  nodes: RedisNodes,
  partition: number,
  { fromMs, toMs, priceList, rightPrices }: Wanted,
  archived: ArchivedCharges | undefined,
): Promise<WrongCharges> {
  const [found, refunded] = [new Map<string, WrongCharge>(), new Map<string, WrongCharge>()];
  const consider = (entry: LedgerEntry): void => {
    const { requestId, endpoint, amount, atMs } = entry;
    const kind = kindOf(entry);
    if (kind === "refund") {
      const [from, to] = entry.type === RECLAIM ? [refunded, found] : [found, refunded];
      const one = from.get(requestId);
      from.delete(requestId);
      if (one) to.set(requestId, one);
    }
    if (kind !== "charge" || atMs < fromMs || atMs >= toMs) return;
    const { list_price: listPrice = -amount, multiplier = "1", price_list: ofList } = detailsOf(entry);
    const rightPrice = rightPrices.get(`${endpoint} ${listPrice}`);
    if (rightPrice === undefined || (priceList !== undefined && ofList !== priceList)) return;
    const credits = -amount - multipliedPrice(rightPrice, multiplier);
    if (credits <= 0) return;
    (archived?.refunded.has(requestId) ? refunded : found).set(requestId, { entry, credits });
  };
  for (const entry of archived?.charges ?? []) consider(entry);
  // An entry in both counts once.
  let after = archived?.archivedTo ?? `${Math.max(0, fromMs - CLOCK_SLACK_MS)}-0`;
  for (;;) {
    const page = await readLedger(nodes.of(partition), partition, after);
    for (const entry of page) consider(entry);
    const last = page.at(-1);
    if (!last) return { wrong: [...found.values()], refunded: refunded.size };
    after = last.streamId;
  }
}

type Outcome = "corrected" | "repeated" | "refunded" | "running";

/** Of charges of a partition. @throws OperatorError as the correction would of its reference */
async function foreseen(redis: Redis, wrong: readonly WrongCharge[], ofAll: string): Promise<Outcome[]> {
  const charges = wrong.map(({ entry: { partition, accountId, requestId }, credits }) => ({
    ...accountNames(partition, accountId),
    ...{ requestId, credits, request: requestName(partition, requestId), own: referenceOf(ofAll, requestId) },
  }));
  type Charge = (typeof charges)[number];
  const uses = await many<string | null, Charge>(redis, charges, (pipe, { references, own }) =>
    pipe.hget(references, own),
  );
  const requests = await many<string | null, Charge>(redis, charges, (pipe, { request }) =>
    pipe.get(request),
  );
  const earlier = await many<string | null, Charge>(redis, charges, (pipe, { refunds, requestId }) =>
    pipe.hget(refunds, requestId),
  );
  return charges.map(({ own, credits }, at) => {
    const [use, by] = [uses[at] ?? null, earlier[at] ?? null];
    if (use !== null && use !== meaningOf(credits)) throw otherUse(own, use, meaningOf(credits));
    const { state, refunded, charged_again: chargedAgain } = requestOf(requests[at] ?? null);
    if (by === own) return "repeated";
    if ((refunded !== undefined && chargedAgain === undefined) || by !== null) return "refunded";
    return state === "bound" ? "running" : "corrected";
  });
}

/** Of the correction of one charge. @param ofAll that of the call */
const referenceOf = (ofAll: string, requestId: string): string => `${ofAll} ${requestId}`;
const meaningOf = (credits: number): string => `adjustment ${credits}`;

async function correctOne(
  nodes: RedisNodes,
  { entry: { partition, accountId, requestId }, credits }: WrongCharge,
  { reference: ofAll, reason }: CorrectionTerms,
  actor: Actor,
  readArchived: ReadArchived | undefined,
): Promise<Outcome> {
  const reference = referenceOf(ofAll, requestId);
  const { outcome } = await oncePerReference(
    { nodes, accountId, reference, standsFor: meaningOf(credits), readArchived },
    (lookedUp) =>
      scriptsOf(nodes.of(partition)).run(correct, {
        ...{ partition, accountId, requestId, credits, reference, reason, lookedUp, actor },
      }),
  );
  switch (outcome) {
    case "corrected":
      return "corrected";
    case "duplicate":
      return "repeated";
    case "unfinished":
      return "running";
    default:
      return "refunded";
  }
}
