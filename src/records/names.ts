import { createHash, hash, randomBytes } from "node:crypto";

/** Where one API key lives in the store: immutable, so it may be cached for the life of the process. */
export interface KeyRef {
  readonly keyId: string;
  readonly accountId: string;
  readonly partition: number;
  readonly names: KeyNames;
}

/** The Redis names that every request of a key touches; built once per key, not once per request. */
interface KeyNames {
  readonly key: string;
  readonly window: string;
  readonly slots: string;
  readonly account: string;
  readonly checkpoint: string;
  readonly due: string;
  readonly done: string;
  readonly ledger: string;
}

export const PARTITIONS_MAX = 1024;

/** `tg:meta`: what is fixed at the first start (hash). */
export const META = "tg:meta";

/** `tg:index:<digest>`: "key id, space, account id"; immutable. In no partition, since the partition follows from that account id. */
export const indexName = (digest: string): string => `tg:index:${digest}`;

/** Hash tag of a partition: all names that carry it share one Redis Cluster slot. */
const tag = (partition: number): string => TAGS[partition] ?? newTag(partition);
const newTag = (partition: number): string => `tg:{p${String(partition).padStart(2, "0")}}`;
const TAGS = Array.from({ length: PARTITIONS_MAX }, (_, partition) => newTag(partition));

/** The mark of a frozen partition, which lua/include/frozen.lua looks for (string: since when, Unix ms). */
export const frozenName = (partition: number): string => `${tag(partition)}:frozen`;

/** The partition of a name; undefined for one outside the partitions. */
export function partitionOfName(name: string): number | undefined {
  const number = /^tg:\{p(\d+)\}/.exec(name)?.[1];
  return number === undefined ? undefined : Number(number);
}

export const partitionOfLedger = (ledger: string): number => Number(/\{p(\d+)\}/.exec(ledger)?.[1] ?? 0);

/** The partition of an account, fixed for its life: SHA-256 modulo the number of partitions. */
export function partitionOf(accountId: string, partitions: number): number {
  return createHash("sha256").update(accountId).digest().readUInt32BE(0) % partitions;
}

/** SHA-256 of an API key, the only form in which the store knows it. */
export function digestOf(apiKey: string): string {
  return hash("sha256", apiKey);
}

/** Names of one partition. Kept, since background work names all partitions several times a second. */
export function partitionNames(partition: number): PartitionNames {
  if (partition >= TAGS.length) return newPartitionNames(partition);
  PARTITION_NAMES[partition] ??= newPartitionNames(partition);
  return PARTITION_NAMES[partition];
}

const PARTITION_NAMES: PartitionNames[] = [];
type PartitionNames = Readonly<ReturnType<typeof newPartitionNames>>;
const newPartitionNames = (partition: number) => ({
  /** Holds by when they end, tasks by when the sweeper may poll them (sorted set; `dueTime`). */
  due: `${tag(partition)}:due`,
  done: `${tag(partition)}:done`,
  ledger: `${tag(partition)}:ledger`,
  /** Where the ledger begins (hash). */
  trimmed: `${tag(partition)}:trimmed`,
  /** Grants that have left the ledger, by their time (sorted set: account id, reference). */
  grants: `${tag(partition)}:grants`,
  /** How far the ledger is rolled up into usage (hash). */
  rolled: `${tag(partition)}:rolled`,
  /** Ends of tasks that are not rolled up yet (sorted set: note by ms). */
  ended: `${tag(partition)}:ended`,
  accounts: `${tag(partition)}:accounts`,
  /** Accounts with a label (sorted set: label in lower case, account id). */
  labels: `${tag(partition)}:labels`,
  /** Accounts that are suspended or closed (sorted set: status, account id). */
  inactive: `${tag(partition)}:inactive`,
  /** Accounts with metadata (sorted set: digest of a name and its value, account id; records/words.ts). */
  metadata: `${tag(partition)}:metadata`,
  /** Words of labels, metadata and references (sorted set: text from a word on, whose it is; records/words.ts). */
  words: `${tag(partition)}:words`,
  /** Accounts by the balance of their ledger (sorted set). */
  byBalance: `${tag(partition)}:by-balance`,
  /** Accounts by what they spent in seven UTC days (sorted set). */
  spentWeek: `${tag(partition)}:spent-week`,
  /** Accounts by the thousandths of a day that their balance lasts at the pace of the week (sorted set). */
  daysLeft: `${tag(partition)}:days-left`,
  tiers: `${tag(partition)}:tiers`,
  /** Keys that end, by when their accounts are told (sorted set). */
  expiring: `${tag(partition)}:expiring`,
  /** Changes by operators (stream; lua/include/audit.lua). */
  audit: `${tag(partition)}:audit`,
});

/** The maintenance switch (hash). Records about the whole store that a script changes are in partition 0. */
export const MAINTENANCE = `${tag(0)}:maintenance`;

/** Names of a token of the management API. All tokens are in partition 0. */
export const tokenNames = (tokenId: string) => ({
  token: `${tag(0)}:token:${tokenId}`,
  /** Token ids by when they were created (sorted set). */
  tokens: `${tag(0)}:tokens`,
  /** SHA-256 of a token that is not revoked to its id (hash). */
  tokenIds: `${tag(0)}:token-ids`,
  /** Token ids by when they expire or were revoked (sorted set). */
  endedTokens: `${tag(0)}:ended-tokens`,
  /** Tokens that were made with it, directly or not, by when they expire; without an id those that operators made (sorted set). */
  family: `${tag(0)}:token-family:${tokenId}`,
});

export const archiveNames = (partition: number) => ({
  /** Position of the archive in the partition (hash). */
  archive: `${tag(partition)}:archive`,
  /** Accounts and keys that the archive has not got as they are now (hash: `account <id>` or `key <id>` to a count). */
  changed: `${tag(partition)}:changed`,
  /** The gateway process that copies the partition (string). */
  archiver: `${tag(partition)}:archiver`,
});

/** Accounts by what they spent on a UTC day, as 2030-01-31: charged without what was refunded (sorted set). */
export const spentName = (partition: number, day: string): string => `${tag(partition)}:spent:${day}`;

/** Refusals of a partition's keys on a UTC day, as 2030-01-31 (hash). */
export const refusalsName = (partition: number, day: string): string => `${tag(partition)}:refusals:${day}`;

export const refusalLogNames = (partition: number, keyId: string) => ({
  /** Refusals of a key, the latest first (list). */
  log: `${tag(partition)}:refusal-log:${keyId}`,
  /** Keys that have such a list, by when they were last refused (sorted set). */
  logs: `${tag(partition)}:refusal-logs`,
});

/** Usage of an account in a UTC month, as 2030-01 (hash). */
export const usageName = (partition: number, accountId: string, month: string): string =>
  `${tag(partition)}:usage:${accountId}:${month}`;

/** Usage of all accounts of a partition in a UTC month, as 2030-01 (hash). */
export const totalsName = (partition: number, month: string): string => `${tag(partition)}:totals:${month}`;

/** Grants of a UTC month (hash). */
export const soldName = (partition: number, month: string): string => `${tag(partition)}:sold:${month}`;

export const listsOfOpenRequests = (partition: number) =>
  DUE_LISTS.map((list) => ({
    list,
    name: partitionNames(partition).due,
    from: dueFrom(list),
    partition,
  }));

/** Hash and field, as in lua/include/references.lua. Names of different references may be the same. */
export function referencePlace(partition: number, reference: string): { name: string; field: string } {
  const digest = hash("sha1", reference);
  return { name: `${tag(partition)}:reference-index:${digest.slice(0, 2)}`, field: digest.slice(2, 14) };
}

/** Account ids at one such place, at most. */
export const REFERENCE_ACCOUNTS_MAX = 20;

export const accountNames = (partition: number, accountId: string) => ({
  account: `${tag(partition)}:account:${accountId}`,
  keys: `${tag(partition)}:keys:${accountId}`,
  /** Its admissions and open requests over all keys; only while it has limits over all of them (list, set). */
  window: `${tag(partition)}:account-window:${accountId}`,
  slots: `${tag(partition)}:account-slots:${accountId}`,
  /** Its requests with an unknown outcome by when their hold ends (sorted set). */
  unknown: `${tag(partition)}:unknown:${accountId}`,
  references: `${tag(partition)}:references:${accountId}`,
  /** Requests that operators refunded, and the references of the refunds (hash). */
  refunds: `${tag(partition)}:refunds:${accountId}`,
  /** References of its grants that were reversed, and the credits of each; without a name the sum (hash). */
  reversed: `${tag(partition)}:reversed:${accountId}`,
  /** Sums of the entries that have left the ledger (string). */
  checkpoint: `${tag(partition)}:checkpoint:${accountId}`,
});

export const webhookNames = (partition: number) => ({
  /** Endpoints by when they have a first try to make (sorted set). */
  first: `${tag(partition)}:webhooks-first`,
  /** Endpoints by when they have a retry to make, or a first try after one that failed (sorted set). */
  retry: `${tag(partition)}:webhooks-retry`,
  /** Endpoints by when they have deliveries to forget (sorted set). */
  clean: `${tag(partition)}:webhooks-clean`,
  /** All endpoints, by when they were registered (sorted set). */
  endpoints: `${tag(partition)}:webhook-endpoints`,
  /** Bytes of events, and how many were dropped (hash). */
  totals: `${tag(partition)}:webhook-totals`,
});

export const endpointNames = (partition: number, endpointId: string) => ({
  endpoint: `${tag(partition)}:webhook:${endpointId}`,
  /** Its deliveries, by when their event was (sorted set: event ids). */
  deliveries: `${tag(partition)}:deliveries:${endpointId}`,
  /** Deliveries that were not tried yet, by when they are due (sorted set). */
  firstTries: `${tag(partition)}:first-tries:${endpointId}`,
  /** Deliveries that failed before, by when they are due (sorted set). */
  retries: `${tag(partition)}:retries:${endpointId}`,
  /** Deliveries that are sent now, by when their lease ends (sorted set). */
  sending: `${tag(partition)}:sending:${endpointId}`,
  /** Deliveries that succeeded or failed for good, by when they did (sorted set). */
  finished: `${tag(partition)}:finished-deliveries:${endpointId}`,
});

/** The endpoints of an account, by when they were registered (sorted set). */
export const webhooksName = (partition: number, accountId: string): string =>
  `${tag(partition)}:webhooks:${accountId}`;

/** The queues of origins of addresses that an account's requests name, by when they were last used (sorted set). */
export const callbackQueuesName = (partition: number, accountId: string): string =>
  `${tag(partition)}:callback-queues:${accountId}`;

/** An event and its deliveries (hash). */
export const eventName = (partition: number, eventId: string): string => `${tag(partition)}:event:${eventId}`;

export const keyNames = (partition: number, keyId: string) => ({
  key: `${tag(partition)}:key:${keyId}`,
  window: `${tag(partition)}:window:${keyId}`,
  slots: `${tag(partition)}:slots:${keyId}`,
});

export function keyRef(keyId: string, accountId: string, partition: number): KeyRef {
  const { account, checkpoint } = accountNames(partition, accountId);
  const { due, done, ledger } = partitionNames(partition);
  return {
    keyId,
    accountId,
    partition,
    names: { ...keyNames(partition, keyId), account, checkpoint, due, done, ledger },
  };
}

export const requestName = (partition: number, requestId: string): string =>
  `${tag(partition)}:request:${requestId}`;

export const probeName = (partition: number, processId: string): string =>
  `${tag(partition)}:probe:${processId}`;

/** The idempotency record; `digest` covers account and customer's key. */
export const idempotencyName = (partition: number, digest: string): string =>
  `${tag(partition)}:idempotency:${digest}`;

/** A task's record, in the partition of the request that owns the task id. */
export const taskName = (taskId: string, partition: number): string => `${tag(partition)}:task:${taskId}`;

/** The owner of a task id over all partitions, as `claimText`. */
export const claimName = (taskId: string): string => `tg:claim:${taskId}`;

/** On a Redis Cluster: the account of a task whose BIND waits in a gateway, since its claim could not be taken (string). */
export const unclaimedName = (partition: number, taskId: string): string =>
  `${tag(partition)}:unclaimed:${taskId}`;

/** The mark that a gateway writes before it waits for replicas (string; gone a minute after the last one). */
export const markName = (partition: number, gateway: string): string => `${tag(partition)}:mark:${gateway}`;

/** Which primary of this partition is the latest (hash). */
export const termName = (partition: number): string => `${tag(partition)}:primary`;

/** Which gateways have sent again what the primary of this partition may lack (hash: gateway to `ms run of the primary`). */
export const replayedName = (partition: number): string => `${tag(partition)}:replayed`;

/** The value of a claim: the request, and the partition of its record. Lua reads it in lua/include/task.lua. */
export const claimText = (requestId: string, partition: number): string =>
  `${requestId} p${String(partition).padStart(2, "0")}`;

export function readClaim(text: string): { requestId: string; partition: number } {
  const [requestId = "", place = ""] = text.split(" ");
  return { requestId, partition: Number(place.slice(1)) };
}

/** The lists of a partition in which requests fall due: holds to void, tasks to poll. */
const DUE_LISTS = ["holds", "polls"] as const;
export type DueList = (typeof DUE_LISTS)[number];

/** `due` has holds by their end and, behind them, tasks by their next poll and this (Unix ms). As in lua/include/due.lua. */
const TASKS_FROM = 1e15;

/** The score from which on `due` has the requests of a list. */
export const dueFrom = (list: DueList): number => (list === "holds" ? 0 : TASKS_FROM);

/** The first and the last score of a list, as Redis takes them. */
export const dueRange = (list: DueList): [from: string, to: string] =>
  list === "holds" ? ["-inf", `(${TASKS_FROM}`] : [`${TASKS_FROM}`, "+inf"];

/** Of a score in `due`: the list, and when the request is due (Unix ms). */
export function dueTime(score: number): { list: DueList; atMs: number } {
  return score < TASKS_FROM ? { list: "holds", atMs: score } : { list: "polls", atMs: score - TASKS_FROM };
}

/** @param prefix such as `key`, in front of an underscore */
export const randomId = (prefix: string): string => `${prefix}_${randomBytes(12).toString("base64url")}`;

/** Random ids are made so often until one fits. */
const TRIES_MAX = 200;

/** The first id that fits; any other if none does. */
export function firstThat(make: () => string, fits: (id: string) => boolean): string {
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    const id = make();
    if (fits(id)) return id;
  }
  return make();
}
