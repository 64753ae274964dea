import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { LedgerEntry } from "../../src/records/ledger-entries.ts";
import type { Stray } from "./strays.ts";

/** One request of a client as the client saw it. Times are Unix ms. */
export interface ClientEvent {
  kind: "generate" | "poll";
  accountId: string;
  keyId: string;
  gateway: string;
  sentMs: number;
  endedMs: number;
  /** HTTP status; 0 when no answer came. */
  status: number;
  /** The envelope's code; 0 when no answer came. */
  code: number;
  requestId: string;
  taskId: string;
  taskStatus: string;
  /** The request whose video a poll was shown; empty when none was. */
  video: string;
  idempotencyKey: string;
  replayed: boolean;
  /** X-Gateway-Degraded: it passed while the store was away. */
  degraded?: boolean;
  /** X-Concurrent-Active and X-RateLimit-Remaining; -1 when no answer came. */
  active: number;
  remaining: number;
  /** Retry-After, s; 0 without it. */
  retryAfterSeconds: number;
  /** The phase at which this client went away of its own accord, or the answer was withheld from it. */
  left: string;
  /** Why no answer came. */
  error: string;
}

/** Meaning of a generation's answer: a task that the gateway was told of, a refusal, or an unknown outcome. */
export type Truth = "yes" | "no" | "unknown";

/** One generation as the upstream saw it. */
export interface UpstreamEvent {
  requestId: string;
  /** The gateway's process. */
  gateway: string;
  atMs: number;
  /** How it misbehaved; `ok` when it did not. */
  kind: string;
  truth: Truth;
  /** Which of the upstream's addresses was asked. */
  site: number;
  /** Of the task that was made, whether or not the answer told it. */
  taskId: string;
  /** When the last byte of the answer was handed over; 0 when it never was. */
  answeredMs: number;
  /** Every state that a poll was told, and `gone` for each 404 of the API itself; with the times. */
  polledStates: string[];
  polledMs: number[];
  /** How often this request id came. */
  arrivals: number;
  /** Where it was asked to call back: the customer's address, or the gateways' own. */
  callBackUrl?: string;
  /** When its task completes upstream, whether or not anybody asks. */
  completesMs?: number;
  /** When a gateway first answered a callback about it with 200. */
  calledBackMs?: number;
  /** When it last did. */
  lastCalledBackMs?: number;
}

/** One settlement on its way to the store, as the proxy in front of it saw it. */
export interface LinkEvent {
  /** Empty where the proxy cannot tell gateways apart. */
  gateway: string;
  script: string;
  requestId: string;
  /** Whose admission it is, where it was read along. */
  keyId?: string;
  atMs: number;
  /** 0 when it was never forwarded. */
  forwardedMs: number;
  /** First word of the reply; empty when none came. */
  outcome: string;
  /** False when the reply was withheld. */
  delivered: boolean;
}

/** The kind of event that says of a request (its `phase`) that its gateway had no answer of the upstream in time. */
export const NO_ANSWER = "no answer in time";
/** As above, of an unclear answer, from the log. */
export const UNCLEAR = "unclear answer";

/** An action of the scenario: `kill` is a SIGKILL of a gateway, all others have their name. */
export interface FaultEvent {
  kind: string;
  atMs: number;
  gateway: string;
  phase: string;
  /** The log's detail of it. */
  detail?: string;
}

/** One name of the store after quiescence; a stream is a list of [id, fields]. */
export interface StoreEntry {
  name: string;
  value: unknown;
}

export interface AccountFacts {
  accountId: string;
  keyId: string;
  granted: number;
  rate_limit: number;
  max_concurrent: number;
  daily_limit: number;
  /** Credits that the key may spend in a month; undefined: no cap. */
  monthly_credits?: number;
  /** From when on its key is invalid, Unix ms. */
  endsAtMs?: number;
  /** The limits are those over all keys of the account; its only key has wide ones. */
  areOfAccount?: boolean;
}

/** The answer to an operator who did it too. */
export interface ByHand {
  kind: "adjust" | "refund";
  accountId: string;
  /** The task, of a refund. */
  taskId: string;
  /** Of an adjustment both have the same one, of a refund each its own. */
  references: string[];
  amount: number;
  /** Such as `adjusted`, `duplicate` or the code of an error. */
  outcomes: string[];
  /** One after the other, and only the archive could tell: it may be that nobody is to be trusted. */
  needsArchive?: true;
}

export interface Meta {
  scenario: string;
  seed: number;
  startedMs: number;
  endedMs: number;
  /** From the end of the load until nothing was open any more, ms. */
  quiescenceMs: number;
  /** False when it was given up. */
  quiet: boolean;
  /** How far clients' clocks and the store's may lie apart, ms. */
  toleranceMs: number;
  /** How far the store's clock was stepped ahead of all others at most, ms. */
  clockAheadMs: number;
  /** `tasks.max_age` of each gateway, ms. */
  maxAgesMs: Record<string, number>;
  /** `tasks.unknown_outcomes_per_account` of all gateways. */
  unknownOutcomesMax: number;
  /** `stepped`: the time was passed in and stepped; there are neither gateways nor an upstream. */
  clock: "redis" | "stepped";
  accounts: AccountFacts[];
  /** The operators' actions. */
  byHand?: ByHand[];
  /** The result of `verifyLedger` of src/ledger. */
  verified: string[];
}

/** A webhook endpoint of an account. Messages to a `callBackUrl` count as those of an endpoint whose id is CALLBACK. */
export interface KnownEndpoint {
  accountId: string;
  endpointId: string;
  /** How the receiver answers there. */
  manner: string;
  /** From when until when it was certainly enabled, Unix ms; several after it was disabled. */
  enabledMs: [fromMs: number, toMs: number][];
}

/** The endpoint of what goes to the addresses that requests name. */
export const CALLBACK = "callback";

/** A receiver's findings while a message waited for its answer. */
export interface Look {
  /** State of the request, and how it ended. */
  state: string;
  status: string;
  holdsSlot: boolean;
  /** True if the ledger has its refund. */
  refunded: boolean;
  /** The answer to a poll through a gateway; empty if there was none. */
  polled: string;
}

/** One try of a message as its receiver saw it. Times are Unix ms. */
export interface ReceivedMessage {
  accountId: string;
  endpointId: string;
  webhookId: string;
  type: string;
  taskId: string;
  body: string;
  /** Undefined: it has no signature. */
  signedWell: boolean | undefined;
  arrivedMs: number;
  /** How it was answered, such as `drip`; undefined while it is not. */
  answer?: string;
  /** HTTP status; 0 when it was given none. */
  status: number;
  /** When its answer was handed to the kernel, or its connection closed. */
  endedMs: number;
  /** Undefined when the store was away. */
  look?: Look;
}

/** State of a delivery, as operators see it. */
export interface StoredDelivery {
  endpointId: string;
  webhookId: string;
  status: string;
  tries: number;
}

/** A gateway took a delivery to send it, as the link saw it. */
export interface Lease {
  endpointId: string;
  webhookId: string;
  /** The latest one has the highest number. */
  lease: number;
  /** When the store had answered, Unix ms. */
  atMs: number;
}

/** How a gateway settled a try, as the link saw it. */
export interface Settling extends Lease {
  result: string;
  outcome: string;
}

/** Only of a run with webhooks. */
export interface WebhookFacts {
  endpoints: KnownEndpoint[];
  messages: ReceivedMessage[];
  /** Connections to where redirects lead, and to addresses that are not allowed. */
  strays: Stray[];
  stored: StoredDelivery[];
  leases: Lease[];
  settlings: Settling[];
  /** Messages that an operator had sent once more. */
  byHand: { endpointId: string; webhookId: string; atMs: number }[];
  /** Answers within this time are in time, ms. */
  answerMs: number;
  /** How long after the begin of a try its lease lasts at least, ms. */
  leaseMs: number;
  perEndpoint: number;
  /** Tries of a delivery. */
  tries: number;
  /** Deliveries that wait at the end. */
  waiting: number;
}

/** The content of PostgreSQL at the end, and of the ledger in Redis. */
export interface ArchiveFacts {
  /** Entries that count. */
  entries: LedgerEntry[];
  inRedis: LedgerEntry[];
  /** Rows that do not count, for Redis has lost them. */
  hidden: number;
  /** By account id. */
  balances: Record<string, number>;
  /** Status by request id. */
  requests: Record<string, string | null>;
}

/** The first callback of a task, posted as it ended. Times are Unix ms, by the clock that Redis has too. */
export interface PostedCallback {
  requestId: string;
  endpoint: string;
  /** How many gateways shared the work. */
  gateways: number;
  /** Before its first byte was sent. */
  postedMs: number;
  /** HTTP status of the answer; 0 when none came. */
  status: number;
  /** True if the request's slot was taken a second later. */
  isSlotTaken: boolean;
}

export interface History {
  meta: Meta;
  client: ClientEvent[];
  upstream: UpstreamEvent[];
  link: LinkEvent[];
  faults: FaultEvent[];
  store: StoreEntry[];
  /** Records that the store had before and has collected by the end. */
  forgotten: StoreEntry[];
  /** Content of another store behind the same address. */
  otherStore: StoreEntry[];
  webhooks?: WebhookFacts;
  /** Only of a run where nothing but these ends a task. */
  posted?: PostedCallback[];
  /** Only of a run with an archive; then `store` has the ledger that Redis and the archive have together. */
  archive?: ArchiveFacts;
}

const PARTS = ["client", "upstream", "link", "faults", "store", "forgotten", "otherStore"] as const;

/** Writes a run: `meta.json`, and one NDJSON file for each part. */
export function writeHistory(folder: string, history: History): void {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "meta.json"), `${JSON.stringify(history.meta, null, 2)}\n`);
  if (history.archive) writeFileSync(join(folder, "archive.json"), JSON.stringify(history.archive));
  if (history.webhooks) writeFileSync(join(folder, "webhooks.json"), JSON.stringify(history.webhooks));
  if (history.posted) writeFileSync(join(folder, "posted.json"), JSON.stringify(history.posted));
  for (const part of PARTS) {
    const lines = history[part].map((entry) => `${JSON.stringify(entry)}\n`);
    writeFileSync(join(folder, `${part}.ndjson`), lines.join(""));
  }
}

export function readHistory(folder: string): History {
  const read = (part: string): unknown[] =>
    readFileSync(join(folder, `${part}.ndjson`), "utf8")
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => JSON.parse(line) as unknown);
  const meta = JSON.parse(readFileSync(join(folder, "meta.json"), "utf8")) as Meta;
  const parts = Object.fromEntries(PARTS.map((part) => [part, read(part)])) as unknown as Omit<
    History,
    "meta"
  >;
  const optional = <T>(name: string): T | undefined => {
    const file = join(folder, name);
    return existsSync(file) ? (JSON.parse(readFileSync(file, "utf8")) as T) : undefined;
  };
  const archive = optional<ArchiveFacts>("archive.json");
  const webhooks = optional<WebhookFacts>("webhooks.json");
  const posted = optional<PostedCallback[]>("posted.json");
  return {
    meta,
    ...parts,
    ...(archive && { archive }),
    ...(webhooks && { webhooks }),
    ...(posted && { posted }),
  };
}
