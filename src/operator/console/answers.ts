// What the console's API answers, by name under /console/api/: the gateway makes it, the page reads it. Without
// imports, since the page's types know nothing of Node's. Moments are ISO 8601; what is undefined is not sent.

/** Reads. */
export interface Answers {
  live: Live;
  "top-keys": {
    keys: TopKey[];
    keys_looked_at: number;
    keys_looked_at_max: number;
    complete: boolean;
  } & MayLackPartitions;
  refusals: { since: string | undefined; refusals: Refusal[] };
  accounts: { accounts: AccountCredits[]; next?: string | undefined } & MayLackPartitions;
  account: Account;
  transactions: Transactions;
  "open-requests": {
    requests: OpenRequest[];
    old: number;
    open: number;
    looked_at_max: number;
    complete: boolean;
  } & MayLackPartitions;
  find:
    | { kind: "account"; account_id: string }
    | { kind: "key"; account_id: string; key_id: string }
    | FoundRequest;
}

/** What is read from all partitions, and may lack those of a server that is away. */
export interface MayLackPartitions {
  /** Which they are, and why. */
  unread?: { partitions: number[]; why: string } | undefined;
}

/** Actions. */
export interface Outcomes {
  release: Confirmable &
    (
      | { outcome: "ended"; refunded: number }
      | { outcome: "voided"; credits: number }
      | { outcome: "already_finished" | "already_void" }
    );
  grant: Confirmable & { outcome: "recharged" | "duplicate"; balance: number };
  revoke: Confirmable & { outcome: "revoked" | "already_revoked" };
}

interface Confirmable {
  /** Whether replicas have it, where that is asked of them. If not, it has to be repeated: a failover may lose it. */
  confirmed?: boolean | undefined;
}

/** Numbers of the last 15 minutes by name, each as long as `at_ms`; null where there is nothing to say. */
export interface LiveView {
  sample_every_ms: number;
  at_ms: number[];
  series: Record<string, (number | null)[]>;
  /** Why requests were answered with 4xx or 5xx. */
  denied: { outcome: string; status: number; last_minute: number; last_15_minutes: number }[];
}

/** @property name `host:port` */
export interface PrimaryState {
  name: string;
  usable: boolean;
}

export interface Live extends LiveView {
  gateway: {
    host: string;
    pid: number;
    uptime_seconds: number;
    not_ready?: string | undefined;
    /** Of a store that Sentinels or a cluster place, as this gateway sees them. */
    primaries: PrimaryState[];
  };
  writable: boolean;
}

/** A key and what it has used at this moment; nothing for one that is revoked or expired. */
export interface KeyUse {
  key_id: string;
  account_id: string;
  tier: string;
  usable: boolean;
  window_used?: number | undefined;
  rate_limit?: number | undefined;
  active?: number | undefined;
  max_concurrent?: number | undefined;
}

export interface TopKey extends KeyUse {
  day_count: number;
  daily_limit: number;
}

export interface AccountKey extends KeyUse {
  created_at?: string | undefined;
  expires_at?: string | undefined;
  revoked_at?: string | undefined;
}

export interface Refusal {
  key_id: string;
  account_id: string;
  outcome: string;
  count: number;
}

export interface AccountCredits {
  account_id: string;
  /** Credits that can be spent. */
  balance: number;
  held: number;
  total_used: number;
  total_requests: number;
}

export interface Account extends AccountCredits {
  keys: AccountKey[];
  more_keys: boolean;
  /** Of the last eight days, latest first. */
  refusals: HourlyRefusals[];
  more_refusals: boolean;
}

/** How often a key was refused for one reason in the hour that begins at `hour`. */
export interface HourlyRefusals {
  hour: string | undefined;
  key_id: string;
  outcome: string;
  count: number;
}

export interface Transactions {
  transactions: Transaction[];
  next?: string | undefined;
}

export interface Transaction {
  id: string;
  type: string;
  amount: number;
  balance_after: number;
  endpoint?: string | undefined;
  reason?: string | undefined;
  reference?: string | undefined;
  task_id?: string | undefined;
  request_id?: string | undefined;
  key_id?: string | undefined;
  created_at?: string | undefined;
}

/** What a question before its release needs. */
export interface Releasable {
  request_id: string;
  task_id?: string | undefined;
  account_id?: string | undefined;
  state?: string | undefined;
  price?: number | undefined;
}

export interface OpenRequest extends Releasable {
  account_id: string;
  key_id: string;
  state: string;
  status?: string | undefined;
  endpoint: string;
  price: number;
  admitted_at?: string | undefined;
  age_seconds: number;
  /** Until the sweeper looks at it; negative when that is overdue. */
  due_in_seconds: number;
}

/** A request by its own id or its task's; one that was void before it came has nothing else. */
export interface FoundRequest extends Releasable {
  kind: "request";
  key_id?: string | undefined;
  status?: string | undefined;
  endpoint?: string | undefined;
  void_reason?: string | undefined;
  ended_by?: string | undefined;
  admitted_at?: string | undefined;
  bound_at?: string | undefined;
  finished_at?: string | undefined;
}
