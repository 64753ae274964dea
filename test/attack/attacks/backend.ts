import type { Attack, Target } from "../attack.ts";
import { atOnce, Connection, deadlineOf, Tally } from "../wire.ts";

const TOKEN = "token-of-the-operators-of-an-attacked-gateway";
const ACCOUNTS = 300;
/** The dearest reads, each over all accounts or over one. */
const READS = [
  "/accounts?limit=100",
  "/accounts?label=shop&limit=100",
  "/overview",
  "/search?q=invoice",
  "/top-keys",
  "/open-requests",
  "/audit?limit=100",
  "/configuration",
  "/accounts/shop-7/usage?from=2020-01-01&to=2030-01-01&group_by=day,endpoint,key",
  "/accounts/shop-7/transactions?limit=100",
];

/** The management API, by the company's own backend, with the right token and without a pause. */
export const carelessBackend: Attack = {
  name: "careless-backend",
  title: `${ACCOUNTS} accounts are made and granted credits over the management API; then 40 connections ask for its most expensive reads, repeat grants and change an account, with the right token, for 8 s`,
  durationMs: 12_000,
  env: { ADMIN_TOKEN: TOKEN },
  async send(target) {
    const tally = new Tally();
    const untilMs = deadlineOf(target);
    const head = `Host: ${new URL(target.adminUrl).host}\r\nAuthorization: Bearer ${TOKEN}`;
    const call = (method: string, path: string, body?: object): string => {
      const text = body === undefined ? "" : JSON.stringify(body);
      const sent = body && `\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}`;
      return `${method} /manage/v1${path} HTTP/1.1\r\n${head}${sent ?? ""}\r\n\r\n${text}`;
    };
    const grant = (accountId: string) =>
      call("POST", `/accounts/${accountId}/grants`, { credits: 5, reference: "invoice 1" });
    let made = 0;
    const statuses = new Set<number>();
    await atOnce(40, async (worker) => {
      let connection: Connection | undefined;
      for (let nth = worker; performance.now() < untilMs; nth++) {
        if (!connection || connection.closed) connection = await Connection.open(tally, target.adminUrl);
        if (!connection) return;
        const number = made++;
        if (number < ACCOUNTS) {
          const accountId = `shop-${number}`;
          await connection.ask(
            call("POST", "/accounts", { account_id: accountId, label: `Shop ${number}` }),
            untilMs,
          );
          await connection.ask(grant(accountId), untilMs);
          continue;
        }
        const path = READS[nth % READS.length]!;
        const requests = [
          call("GET", path),
          call("GET", path),
          grant("shop-7"),
          call("PATCH", "/accounts/shop-7", { label: `Shop ${nth}` }),
        ];
        const status = await connection.ask(requests[nth % requests.length]!, untilMs);
        if (status) statuses.add(status);
      }
      connection?.destroy();
    });
    // 404: an account that its backend asks for before it is made.
    const expected = [200, 201, 404, 503];
    const others = [...statuses].filter((status) => !expected.includes(status));
    tally.check(
      "calls are answered, or refused as too many at a time",
      others.length === 0,
      others.join(", ") || "all",
    );
    tally.check("calls are answered at all", tally.count(200, 201) > ACCOUNTS, tally.count(200, 201));
    return tally;
  },
};

const WRITES_PER_MINUTE = 12;
const TOKENS = 1;
/** More than an address may try in a minute. */
const WRONG_TOKENS = 20;

/** A small token that makes tokens, keys and large metadata without a pause, with all that it has made. */
export const smallToken: Attack = {
  name: "small-token",
  title:
    "20 connections with one token that may write accounts, keys and tokens, and with those that it makes: 4 KB of metadata, keys and tokens, without a pause, for 8 s",
  durationMs: 8000,
  env: { ADMIN_TOKEN: TOKEN },
  config: { admin: { token_writes_per_minute: WRITES_PER_MINUTE, tokens_per_token: TOKENS } },
  async send(target) {
    const tally = new Tally();
    const manage = async (path: string, body: object, token = TOKEN, method = "POST", key = "one") => {
      const headers = {
        Authorization: `Bearer ${token}`,
        "Content-Type": "application/json",
        "Idempotency-Key": key,
      };
      const url = `${target.adminUrl}/manage/v1${path}`;
      const answer = await fetch(url, { method, headers, body: JSON.stringify(body) });
      return { status: answer.status, body: (await answer.json()) as Record<string, string> };
    };
    const scopes = ["accounts:write", "keys:write", "tokens:write"];
    await manage("/accounts", { account_id: "shop" });
    const root = (await manage("/tokens", { label: "small", scopes })).body;
    const tokens = [root.token!];
    const done = { writes: 0, tokens: 0 };
    const metadata = Object.fromEntries(Array.from({ length: 36 }, (_, at) => [`m${at}`, "x".repeat(100)]));
    const untilMs = deadlineOf(target);
    await atOnce(20, async (worker) => {
      for (let nth = worker; performance.now() < untilMs; nth++) {
        const token = tokens[nth % tokens.length]!;
        const calls = [
          () => manage("/accounts/shop", { metadata: { ...metadata, nth } }, token, "PATCH"),
          () => manage("/tokens", { label: "child", scopes }, token),
          () => manage("/accounts/shop/keys", {}, token, "POST", `${worker}-${nth}`),
        ];
        const answer = await calls[nth % calls.length]!();
        tally.requests++;
        tally.answers[answer.status] = (tally.answers[answer.status] ?? 0) + 1;
        if (answer.status < 300) done.writes++;
        if (answer.body.token) {
          done.tokens++;
          tokens.push(answer.body.token);
        }
      }
    });
    tally.check(
      "a token and those that it made write no more than they may",
      done.writes <= WRITES_PER_MINUTE,
      done.writes,
    );
    tally.check(
      "a token and those that it made make no more than they may",
      done.tokens <= TOKENS,
      done.tokens,
    );
    const revoked = await manage(`/tokens/${root.token_id}/revoke`, {});
    const after = await Promise.all(tokens.map((token) => whoami(target, token)));
    tally.check(
      "the token ends with all that it made",
      revoked.status === 200 && after.every(({ status }) => status === 401 || status === 429),
      after.map(({ status }) => status).join(" "),
    );
    const made = await manage("/tokens", { label: "own", scopes });
    tally.check("operators make a token", made.status === 201, made.status);
    await tryWrongTokens(tally, target, made.body.token!);
    return tally;
  },
};

const whoami = ({ adminUrl }: Target, token: string): Promise<Response> =>
  fetch(`${adminUrl}/manage/v1/whoami`, { headers: { Authorization: `Bearer ${token}` } });

/** More than an address may, then the right one. */
async function tryWrongTokens(tally: Tally, target: Target, right: string): Promise<void> {
  const statuses: number[] = [];
  for (let at = 0; at < WRONG_TOKENS; at++)
    statuses.push((await whoami(target, `tgm_${String(at).padStart(43, "x")}`)).status);
  const { status } = await whoami(target, right);
  tally.check("wrong tokens are throttled", statuses.at(-1) === 429, statuses.join(" "));
  tally.check("a right token is taken from an address of many wrong ones", status === 200, status);
}
