import type { components } from "./management.d.ts";

type Schemas = components["schemas"];
export type Account = Schemas["Account"];
export type Key = Schemas["Key"];
export type Transaction = Schemas["Transaction"];
export type Task = Schemas["Task"];
export type Usage = Schemas["Usage"];
export type Package = Schemas["Package"];
export type Statement = Schemas["Statement"];
export type Problem = Schemas["Problem"];

/** A refusal of Tollgate. `problem` is its body by RFC 9457, `waitMs` its Retry-After, 0 without one. */
export class TollgateError extends Error {
  readonly status: number;
  readonly problem: Problem | undefined;
  readonly waitMs: number;

  constructor(status: number, problem: Problem | undefined, waitMs: number) {
    super(problem?.detail ?? `Tollgate answered ${status}`);
    this.status = status;
    this.problem = problem;
    this.waitMs = waitMs;
  }
}

const path = (parts: TemplateStringsArray, ...ids: string[]): string =>
  String.raw({ raw: parts }, ...ids.map(encodeURIComponent));

const TRIES = 3;
const TIMEOUT_MS = 10_000;
/** Who is told to wait for longer is told so at once. */
const WAIT_MAX_MS = 10_000;

/** @returns undefined if the call is not to be repeated */
function waitAfter(attempt: number, error: unknown): number | undefined {
  if (attempt === TRIES) return undefined;
  const waitMs = 200 * 2 ** attempt;
  if (!(error instanceof TollgateError)) return waitMs;
  const isBusy = error.status === 503 || error.status === 429;
  return isBusy && error.waitMs <= WAIT_MAX_MS ? Math.max(waitMs, error.waitMs) : undefined;
}

export type Tollgate = ReturnType<typeof createTollgate>;

/**
 * The calls that a shop needs. Each of them may be repeated: what has an id of ours or a reference happens once. So all are
 * tried again when the connection breaks, or after the wait that Tollgate asks for. Where a first answer was lost, three of them answer
 * their repeat in another way, which their callers must expect: createAccount, createKey and rotateKey.
 * @param url of the admin port, such as http://127.0.0.1:9090
 * @param token with the scopes that README.md names
 */
export function createTollgate({ url, token }: { url: string; token: string }) {
  async function once<T>(
    method: string,
    target: string,
    body: object | undefined,
    headers: object,
  ): Promise<T> {
    const response = await fetch(`${url}/manage/v1${target}`, {
      method,
      headers: {
        Authorization: `Bearer ${token}`,
        ...(body && { "Content-Type": "application/json" }),
        ...headers,
      },
      signal: AbortSignal.timeout(TIMEOUT_MS),
      ...(body && { body: JSON.stringify(body) }),
    });
    if (response.ok) return (await response.json()) as T;
    const isProblem = response.headers.get("Content-Type")?.startsWith("application/problem+json");
    const problem = isProblem ? ((await response.json()) as Problem) : undefined;
    throw new TollgateError(response.status, problem, 1000 * Number(response.headers.get("Retry-After")));
  }

  async function call<T>(method: string, target: string, body?: object, headers: object = {}): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await once<T>(method, target, body, headers);
      } catch (error) {
        const waitMs = waitAfter(attempt, error);
        if (waitMs === undefined) throw error;
        await new Promise((resolve) => setTimeout(resolve, waitMs));
      }
    }
  }

  return {
    /** @throws TollgateError 409 if there is such an account, also one that an earlier try has made */
    createAccount: (accountId: string, label: string) =>
      call<Account>("POST", "/accounts", { account_id: accountId, label }),
    account: (accountId: string) => call<Account>("GET", path`/accounts/${accountId}`),
    setStatus: (accountId: string, status: Account["status"]) =>
      call<Account>("PATCH", path`/accounts/${accountId}`, { status }),
    /** `key` is in the first answer only. @param requestId names this key: a repeat makes no second one */
    createKey: (accountId: string, requestId: string, monthlyCredits: number) =>
      call<Key>(
        "POST",
        path`/accounts/${accountId}/keys`,
        { monthly_credits: monthlyCredits },
        {
          "Idempotency-Key": requestId,
        },
      ),
    /** Oldest first, with those that have ended. */
    keys: (accountId: string) =>
      allRows<Key>((cursor) => {
        const query = new URLSearchParams({ limit: "100", ...cursor });
        return call("GET", `${path`/accounts/${accountId}/keys`}?${query}`);
      }),
    /** A new key in the place of this one. @param overlap how long the old one goes on @throws TollgateError 409 if that was done, also by an earlier try */
    rotateKey: (accountId: string, keyId: string, overlap: string) =>
      call<Key>("POST", path`/accounts/${accountId}/keys/${keyId}/rotate`, { overlap }),
    revokeKey: (accountId: string, keyId: string) =>
      call<Key>("POST", path`/accounts/${accountId}/keys/${keyId}/revoke`),
    /** Whose key this is. */
    lookUpKey: (key: string) => call<Key>("POST", "/keys/lookup", { key }),
    packages: () => call<{ data: Package[] }>("GET", "/packages"),
    /** Idempotent: a reference credits once. */
    grant: (accountId: string, packageName: string, reference: string) =>
      call<Transaction>("POST", path`/accounts/${accountId}/grants`, { package: packageName, reference }),
    /** Takes back what is left of a grant. @throws TollgateError 409 if nothing is */
    reverse: (accountId: string, of: string, reference: string, reason: string) =>
      call<Transaction>("POST", path`/accounts/${accountId}/reversals`, { of, reference, reason }),
    statement: (accountId: string, month: string) =>
      call<Statement>("GET", path`/accounts/${accountId}/statements/${month}`),
    usage: (accountId: string, from: string, to: string) =>
      allRows<Usage["data"][number]>((cursor) => {
        const query = new URLSearchParams({ from, to, group_by: "day,endpoint", ...cursor });
        return call("GET", `${path`/accounts/${accountId}`}/usage?${query}`);
      }),
    task: (taskId: string) => call<Task>("GET", path`/tasks/${taskId}`),
    /** Gives the credits of a completed task back, once. */
    refund: (taskId: string, reason: string, reference: string) =>
      call<Transaction>("POST", path`/tasks/${taskId}/refund`, { reason, reference }),
  };
}

/** The rows of all pages: one of keys has at most 100, one of usage 1,000, and may end with a month. */
async function allRows<Row>(
  read: (cursor: { cursor?: string }) => Promise<{ data: Row[]; next_cursor: string | null }>,
): Promise<Row[]> {
  const rows: Row[] = [];
  for (let cursor = {}; ; ) {
    const { data, next_cursor } = await read(cursor);
    rows.push(...data);
    if (next_cursor === null) return rows;
    cursor = { cursor: next_cursor };
  }
}
