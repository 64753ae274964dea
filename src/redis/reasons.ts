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

interface Row {
  /** Matches the code or the message of the client library's or the system's error. */
  matches: RegExp;
  why: string;
  advice?: string;
  /** Redis could not be reached, as far as this error says. All other errors are an answer. */
  isUnreachable?: true;
}

const NO_TRUST =
  "its certificate is signed by no authority that is trusted here; name the file of yours in store.tls_ca";
const SAME_DATA =
  "if it is down, bring back this Redis with its data: an empty one in its place has no accounts and no credits";
const REACH =
  "see that the host and port in REDIS_URL are right, that Redis runs there and is not stalled, that no firewall is " +
  "between, and that redis:// is used without TLS and rediss:// with it";
const AWAY = `${REACH}; ${SAME_DATA}`;

/** The first row that matches counts. Other errors have a message of Redis's own, such as NOPERM or LOADING. */
const ROWS: readonly Row[] = [
  {
    matches: /^(Stream isn't writeable|not connected)/,
    why: "there is no connection to Redis",
    isUnreachable: true,
    advice: AWAY,
  },
  {
    matches: /^(Connection is closed|Socket closed|ECONNRESET|EPIPE|read ECONNRESET|write EPIPE)/,
    why: "Redis, or something before it, closed the connection",
    isUnreachable: true,
    advice: `see Redis's log; if it wants TLS, use rediss://; ${SAME_DATA}`,
  },
  {
    matches: /Unknown RESP type|^Protocol error, got|^ParserError/,
    why: "the server does not speak Redis's protocol",
    advice: "if it wants TLS, use rediss://; else see that the port in REDIS_URL is that of Redis",
  },
  {
    matches: /^(EPROTO|ERR_SSL)|wrong version number|packet length too long/,
    why: "the server does not speak TLS",
    advice: "use redis:// for a Redis without TLS, or the port where it speaks TLS",
  },
  {
    matches: /^(DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT|UNABLE_TO_(VERIFY|GET_ISSUER))/,
    why: "the server's certificate is not trusted",
    advice: NO_TRUST,
  },
  {
    matches: /^CERT_(HAS_EXPIRED|NOT_YET_VALID)/,
    why: "the server's certificate has expired, or is not valid yet",
    advice: "renew it, and see that both clocks are right",
  },
  {
    matches: /^(ERR_TLS_CERT_ALTNAME|CERT_SIGNATURE|ERR_TLS)/,
    why: "the server's certificate is for another name",
    advice: "use the name in REDIS_URL that the certificate has",
  },
  {
    matches: /ECONNREFUSED/,
    why: "nothing listens at this address (ECONNREFUSED)",
    isUnreachable: true,
    advice: AWAY,
  },
  {
    matches: /ENOTFOUND|EAI_AGAIN/,
    why: "the name of the host cannot be resolved",
    isUnreachable: true,
    advice: `see that the host in REDIS_URL is right, and that DNS answers; ${SAME_DATA}`,
  },
  {
    matches: /EHOSTUNREACH|ENETUNREACH|ETIMEDOUT/,
    why: "the server does not answer",
    isUnreachable: true,
    advice: AWAY,
  },
  {
    matches: /^Command timed out/,
    why: "Redis does not answer in time (Command timed out)",
    isUnreachable: true,
    advice: `see that it runs and is not stalled; ${SAME_DATA}`,
  },
  {
    matches: /^no answer to the handshake/,
    why: "Redis accepts connections and does not answer on them",
    isUnreachable: true,
    advice:
      "see that it is not stopped or stalled, that a proxy or firewall in between passes its answers on, and that " +
      `rediss:// is used if it wants TLS; ${SAME_DATA}`,
  },
  {
    matches: /^no answer within/,
    why: "no answer within 2 seconds",
    isUnreachable: true,
    advice: AWAY,
  },
  {
    matches: /^READONLY/,
    why: "Redis is a read-only replica (READONLY)",
    advice: "point REDIS_URL to the primary",
  },
  {
    matches: /^NOREPLICAS/,
    why: "too few replicas follow this primary (NOREPLICAS, min-replicas-to-write)",
    advice: "bring its replicas back; right after a failover they come by themselves",
  },
  {
    matches: /^ERR DB index is out of range/,
    why: "Redis has no database of that number (DB index is out of range)",
    advice: "leave the number at the end of REDIS_URL out, or use one that Redis has (its `databases`)",
  },
  {
    matches: /^FROZEN/,
    why: "an operator has frozen the partition of this account; nothing is changed",
    advice: "see `tollgate partitions list`, and run this again when it is thawed",
  },
  {
    matches: /^OOM command not allowed/,
    why: "Redis is full (OOM, maxmemory): nothing is written that takes memory",
    advice: "give it more memory, or let the archive take finished entries; see docs/operations/sizing.md",
  },
  {
    matches: /^WRONGTYPE/,
    why: "a key of this Redis is not of the type that Tollgate gives it (WRONGTYPE)",
    advice: "see whether another program uses this Redis, or this number of its databases",
  },
  {
    matches: /^NOAUTH/,
    why: "Redis wants a password (NOAUTH)",
    advice: "give its user and password in REDIS_URL, as in redis://user:password@host:6379",
  },
  {
    matches: /^WRONGPASS|invalid username-password/,
    why: "Redis refuses the user or the password (WRONGPASS)",
    advice: "give its user and password in REDIS_URL, as in redis://user:password@host:6379",
  },
];

const systemError = (error: unknown): Partial<NodeJS.ErrnoException> =>
  error instanceof Error ? error : { message: String(error) };

function rowOf(error: unknown): Row | undefined {
  const { message = "", code = "" } = systemError(error);
  return ROWS.find(({ matches }) => matches.test(code) || matches.test(message));
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
  rowOf(error)?.isUnreachable === true;

export function storeReason(error: unknown): StoreReason {
  if (error instanceof StoreError) return error;
  const { message = "", code = "" } = systemError(error);
  const row = rowOf(error);
  if (row) return { why: row.why, advice: row.advice };
  if (/^NOPERM/.test(message))
    return { why: message, advice: "give it the rights in docs/operations/redis.md, Access" };
  return { why: message || code || "no reason given", advice: undefined };
}

/** The explanation in one line. A line that it has made is returned unchanged. */
export function inStoreWords(error: unknown): string {
  const { why, advice } = storeReason(error);
  return advice === undefined || why.includes(advice) ? why : `${why}; ${advice}`;
}
