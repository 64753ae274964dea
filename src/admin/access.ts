import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { isIP } from "node:net";
import { dropOldest } from "../domain/bounded.ts";
import { clientAddress } from "../gateway/address.ts";
import type { SignInRefusal } from "../telemetry/metrics/requests.ts";

const WRONG_TOKENS_PER_MINUTE = 10;
/** From all addresses together; those that have shown the right token are exempt. */
const ALL_WRONG_TOKENS_PER_MINUTE = 100;
const ADDRESSES_MAX = 10_000;
const MINUTE_MS = 60_000;
/** A token of the management API, whose 32 random bytes nobody guesses. */
const API_TOKEN = /^tgm_[\w-]{43}$/;

/** `page`: a file of the console, which holds no data. */
type AccessKind = "page" | "data";

type AccessDecision = { outcome: "allowed" } | Denied;

interface Denied {
  outcome: "denied";
  status: 401 | 403 | 421 | 429;
  reason: SignInRefusal;
  /** Why, in words; never holds the token. */
  error: string;
  headers: Record<string, string>;
}

export interface TokenAttempt {
  token: string | undefined;
  /** It has the form of a token of the management API: that is looked up before anything else. */
  isApiToken: boolean;
  /** It is the gateway's ADMIN_TOKEN, and its address has not tried too many others. */
  isAdmin: boolean;
  wasRight(): void;
  /** Counts a wrong one. @returns how long its address has to wait after too many; 0: not at all */
  wasWrong(): number;
}

/** One for the whole admin port: wrong tokens count together, wherever they are tried. */
export type Access = ReturnType<typeof createAccess>;

/**
 * Decides who may use the admin port, for every path but `/livez`, `/readyz` and `/metrics`. A browser anywhere can be made to send requests
 * to it, so those for another name (rebound to this address) and those of another site are refused. Decision 0039.
 * @param options.hosts further names that it answers to (`admin.hosts`)
 */
export function createAccess(options: {
  token: string | undefined;
  host: string;
  hosts?: () => readonly string[];
  nowMs?: () => number;
}) {
  const { token, host, hosts = () => [] } = options;
  const expected = token === undefined ? undefined : digestOf(token);
  const nowMs = options.nowMs ?? (() => performance.now());
  // People may have chosen ADMIN_TOKEN, so guesses at it lock it out. An API token is none, and what was wrong locks out no right one.
  const guesses = createWrongTokens(nowMs);
  const unknown = createWrongTokens(nowMs);
  const isClosed = expected === undefined && !isLoopback(host);

  function attempt(req: IncomingMessage): TokenAttempt {
    const address = blockOf(req.socket.remoteAddress, undefined);
    const given = /^bearer +(\S+) *$/i.exec(req.headers.authorization ?? "")?.[1];
    const isApiToken = given !== undefined && API_TOKEN.test(given);
    const wrong = isApiToken ? unknown : guesses;
    const blockedMs = Math.max(wrong.blockedMs(address), guesses.blockedMs(address));
    const isAdmin =
      given !== undefined && expected !== undefined && timingSafeEqual(digestOf(given), expected);
    return {
      token: given,
      isApiToken,
      isAdmin: isAdmin && (isApiToken || blockedMs === 0),
      wasRight: () => guesses.wasRight(address),
      wasWrong() {
        if (blockedMs === 0) wrong.wasWrong(address);
        return Math.ceil(blockedMs / 1000);
      },
    };
  }

  /** Refuses a request for another name, one of another site, and all while the port is closed; undefined for any other. */
  function checkSource(req: IncomingMessage): Denied | undefined {
    const name = nameIn(req.headers.host);
    if (!isOwnName(name, host) && !hosts().some((own) => own.toLowerCase() === name)) {
      return denied(
        421,
        "wrong_host",
        "this answers to IP addresses, localhost and the names in admin.hosts only",
      );
    }
    if (fromAnotherSite(req)) return denied(403, "other_site", "requests of other sites are refused");
    return isClosed ? denied(403, "no_admin_token", CLOSED) : undefined;
  }

  return {
    closed: isClosed,
    checkSource,
    attempt,
    check(req: IncomingMessage, wanted: AccessKind): AccessDecision {
      const refused = checkSource(req);
      if (refused) return refused;
      if (wanted === "page") return { outcome: "allowed" };
      return expected ? decisionOn(attempt(req)) : { outcome: "allowed" };
    },
  };
}

function decisionOn({ token, isAdmin, wasRight, wasWrong }: TokenAttempt): AccessDecision {
  if (token === undefined) return denied(401, "no_token", "this needs the gateway's ADMIN_TOKEN");
  if (isAdmin) {
    wasRight();
    return { outcome: "allowed" };
  }
  const waitSeconds = wasWrong();
  if (waitSeconds === 0) return denied(401, "wrong_token", "this is not the gateway's ADMIN_TOKEN");
  const headers = { "Retry-After": String(waitSeconds) };
  return { ...denied(429, "too_many_wrong_tokens", "too many wrong tokens; wait a minute"), headers };
}

const SET_TOKEN = "set ADMIN_TOKEN (16 characters or more) in the gateway's environment and restart it";
const CLOSED = `the admin port is bound beyond loopback and has no token, so only /livez, /readyz and /metrics are served: ${SET_TOKEN}, or bind admin.host to 127.0.0.1`;

function createWrongTokens(nowMs: () => number) {
  const byAddress = new Map<string, { count: number; sinceMs: number }>();
  let total = { count: 0, sinceMs: 0 };
  const proven = new Map<string, true>();

  const leftMs = ({ sinceMs }: { sinceMs: number }) => sinceMs + MINUTE_MS - nowMs();
  const blocked = (entry: { count: number; sinceMs: number } | undefined, most: number): number =>
    entry && entry.count >= most ? Math.max(0, leftMs(entry)) : 0;

  return {
    blockedMs: (address: string): number =>
      blocked(byAddress.get(address), WRONG_TOKENS_PER_MINUTE) ||
      (proven.has(address) ? 0 : blocked(total, ALL_WRONG_TOKENS_PER_MINUTE)),
    wasRight(address: string): void {
      proven.delete(address);
      dropOldest(proven, ADDRESSES_MAX);
      proven.set(address, true);
    },
    wasWrong(address: string): void {
      if (leftMs(total) <= 0) total = { count: 0, sinceMs: nowMs() };
      total.count++;
      const entry = byAddress.get(address);
      if (entry && leftMs(entry) > 0) {
        entry.count++;
        return;
      }
      byAddress.delete(address);
      dropOldest(byAddress, ADDRESSES_MAX);
      byAddress.set(address, { count: 1, sinceMs: nowMs() });
    },
  };
}

/** The address that attempts count for: of IPv6 the /64. X-Forwarded-For is not trusted here. */
const blockOf = clientAddress([]);

/** Fetch metadata where the browser sends it (to https and loopback), and Origin, which it sends with every POST. */
function fromAnotherSite({ headers, method }: IncomingMessage): boolean {
  const site = headers["sec-fetch-site"];
  // `none`: a person typed the address. A link may lead here from anywhere: the site it stands on cannot read the answer.
  const isLink = headers["sec-fetch-mode"] === "navigate" && headers["sec-fetch-dest"] === "document";
  const isVisit = method === "GET" && (site === "none" || isLink);
  if (site !== undefined && site !== "same-origin" && !isVisit) return true;
  const { origin, host } = headers;
  if (origin === undefined) return false;
  return !URL.canParse(origin) || new URL(origin).host !== host?.toLowerCase();
}

/** The name in a Host header, without its port; undefined where it is none. */
function nameIn(host: string | undefined): string | undefined {
  if (host === undefined || !URL.canParse(`http://${host}`)) return undefined;
  return new URL(`http://${host}`).hostname.replace(/^\[|\]$/g, "");
}

/** An address cannot be rebound to another one; a name can. */
const isOwnName = (name: string | undefined, own: string): boolean =>
  name !== undefined &&
  (isIP(name) !== 0 || name === "localhost" || name.endsWith(".localhost") || name === own.toLowerCase());

const isLoopback = (host: string): boolean =>
  host === "localhost" || host === "::1" || (isIP(host) === 4 && host.startsWith("127."));

const digestOf = (text: string): Buffer => createHash("sha256").update(text).digest();
const denied = (status: Denied["status"], reason: SignInRefusal, error: string): Denied => ({
  outcome: "denied",
  status,
  reason,
  error,
  headers: status === 401 ? { "WWW-Authenticate": "Bearer" } : {},
});
