interface StoreReason {
  why: string;
  advice: string | undefined;
}

/** An error that is in words for logs and operators already. */
export class StoreError extends Error implements StoreReason {
  readonly why: string;
  readonly advice: string | undefined;

  constructor(why: string, advice?: string) {
    super(advice === undefined ? why : `${why}; ${advice}`);
    this.why = why;
    this.advice = advice;
  }
}

/** Explains an error of the client library or the system by its code or its message. */
type Row = readonly [matches: RegExp, why: string, advice: string];

const NO_TRUST =
  "its certificate is signed by no authority that is trusted here; name the file of yours in store.tls_ca";
const SAME_DATA =
  "if it is down, bring back this Redis with its data: an empty one in its place has no accounts and no credits";
const REACH =
  "see that the host and port in REDIS_URL are right, that Redis runs there and is not stalled, that no firewall is " +
  "between, and that redis:// is used without TLS and rediss:// with it";
const OFFER =
  "take it out of `rename-command` in Redis's configuration; a hosted Redis that does not offer it cannot be used";
const AWAY = `${REACH}; ${SAME_DATA}`;

/** Redis could not be reached. The first row that matches counts, here and below. */
const UNREACHABLE: readonly Row[] = [
  [/^(Stream isn't writeable|not connected)/, "there is no connection to Redis", AWAY],
  [
    // The second and the third: of a command without a reply, where the client connects again by itself.
    /^(Connection is closed|Reached the max retries|Command aborted due to connection|Socket closed|ECONNRESET|EPIPE|read ECONNRESET|write EPIPE)/,
    "Redis, or something before it, closed the connection",
    `see Redis's log; if it wants TLS, use rediss://; ${SAME_DATA}`,
  ],
  [/ECONNREFUSED/, "nothing listens at this address (ECONNREFUSED)", AWAY],
  [
    /ENOTFOUND|EAI_AGAIN/,
    "the name of the host cannot be resolved",
    `see that the host in REDIS_URL is right, and that DNS answers; ${SAME_DATA}`,
  ],
  [/EHOSTUNREACH|ENETUNREACH|ETIMEDOUT/, "the server does not answer", AWAY],
  [
    /^Command timed out/,
    "Redis does not answer in time (Command timed out)",
    `see that it runs and is not stalled; ${SAME_DATA}`,
  ],
  [
    /^no answer to the handshake/,
    "Redis accepts connections and does not answer on them",
    "see that it is not stopped or stalled, that a proxy or firewall in between passes its answers on, and that " +
      `rediss:// is used if it wants TLS; ${SAME_DATA}`,
  ],
  [/^no answer within/, "no answer within 2 seconds", AWAY],
];

/** Answers. Others have a message of Redis's own, such as NOPERM or LOADING. */
const ANSWERS: readonly Row[] = [
  [
    /Unknown RESP type|^Protocol error, got|^ParserError/,
    "the server does not speak Redis's protocol",
    "if it wants TLS, use rediss://; else see that the port in REDIS_URL is that of Redis",
  ],
  [
    /^(EPROTO|ERR_SSL)|wrong version number|packet length too long/,
    "the server does not speak TLS",
    "use redis:// for a Redis without TLS, or the port where it speaks TLS",
  ],
  [
    /^(DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT|UNABLE_TO_(VERIFY|GET_ISSUER))/,
    "the server's certificate is not trusted",
    NO_TRUST,
  ],
  [
    /^CERT_(HAS_EXPIRED|NOT_YET_VALID)/,
    "the server's certificate has expired, or is not valid yet",
    "renew it, and see that both clocks are right",
  ],
  [
    /^(ERR_TLS_CERT_ALTNAME|CERT_SIGNATURE|ERR_TLS)/,
    "the server's certificate is for another name",
    "use the name in REDIS_URL that the certificate has",
  ],
  [/^READONLY/, "Redis is a read-only replica (READONLY)", "point REDIS_URL to the primary"],
  [
    /^NOREPLICAS/,
    "too few replicas follow this primary (NOREPLICAS, min-replicas-to-write)",
    "bring its replicas back; right after a failover they come by themselves",
  ],
  [
    /^ERR DB index is out of range/,
    "Redis has no database of that number (DB index is out of range)",
    "leave the number at the end of REDIS_URL out, or use one that Redis has (its `databases`)",
  ],
  [
    /^FROZEN/,
    "an operator has frozen the partition of this account; nothing is changed",
    "see `tollgate partitions list`, and run this again when it is thawed",
  ],
  [
    /^OOM command not allowed/,
    "Redis is full (OOM, maxmemory): nothing is written that takes memory",
    "give it more memory, or let the archive take finished entries; see docs/operations/sizing.md",
  ],
  [
    /^WRONGTYPE/,
    "a key of this Redis is not of the type that Tollgate gives it (WRONGTYPE)",
    "see whether another program uses this Redis, or this number of its databases",
  ],
  [
    /^NOAUTH/,
    "Redis wants a password (NOAUTH)",
    "give its user and password in REDIS_URL, as in redis://user:password@host:6379",
  ],
  [
    /^WRONGPASS|invalid username-password/,
    "Redis refuses the user or the password (WRONGPASS)",
    "give its user and password in REDIS_URL, as in redis://user:password@host:6379",
  ],
];

const systemError = (error: unknown): Partial<NodeJS.ErrnoException> =>
  error instanceof Error ? error : { message: String(error) };

function rowOf(error: unknown, rows: readonly Row[] = [...UNREACHABLE, ...ANSWERS]): Row | undefined {
  const { message = "", code = "" } = systemError(error);
  return rows.find(([matches]) => matches.test(code) || matches.test(message));
}

/** Names of the errors of the client library, Redis's answers among them. */
const CLIENT_ERRORS = new Set(["AbortError", "InterruptError", "ParserError", "RedisError", "ReplyError"]);

export function isStoreError(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const isOfSystem = systemError(error).syscall !== undefined;
  return (
    error instanceof StoreError || CLIENT_ERRORS.has(error.name) || isOfSystem || rowOf(error) !== undefined
  );
}

/** Any other error is an answer: Redis refuses, lacks what a gateway needs, or is not trusted. */
export const isUnreachable = (error: unknown): boolean =>
  !(error instanceof StoreError) &&
  systemError(error).name !== "ReplyError" &&
  rowOf(error, UNREACHABLE) !== undefined;

export function storeReason(error: unknown): StoreReason {
  if (error instanceof StoreError) return error;
  const { message = "", code = "" } = systemError(error);
  const row = rowOf(error);
  if (row) return { why: row[1], advice: row[2] };
  if (/^NOPERM|^ERR (ACL failure in script|The user executing the script)/.test(message))
    return { why: message, advice: "give it the rights in docs/operations/redis.md, Access" };
  const missing = /^ERR unknown command ['`]([\w|-]+)/i.exec(message)?.[1];
  if (missing !== undefined)
    return { why: `Redis does not offer the command ${missing.toUpperCase()}`, advice: OFFER };
  return { why: message || code || "no reason given", advice: undefined };
}

/** The explanation in one line. A line that it has made is returned unchanged. */
export function inStoreWords(error: unknown): string {
  const { why, advice } = storeReason(error);
  return advice === undefined || why.includes(advice) ? why : `${why}; ${advice}`;
}
