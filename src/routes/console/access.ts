import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { isIP } from "node:net";
import { dropOldest } from "../../core/bounded.ts";

const WRONG_TOKENS_PER_MINUTE = 10;
const ADDRESSES_MAX = 10_000;
const MINUTE_MS = 60_000;

export type Entry = { outcome: "allowed" } | Denied;

export interface Denied {
  outcome: "denied";
  status: 401 | 403 | 429;
  /** Why; never holds the token. */
  error: string;
  wrongToken?: true;
  retryAfterSeconds?: number;
}

/** One for the whole admin port: wrong tokens count together, wherever they are tried. */
export type Access = ReturnType<typeof createAccess>;

/**
 * Who may ask the console's data? A browser anywhere can be made to send requests to a port on loopback, so another
 * site's requests are refused by what browsers say of themselves, and without a token so are foreign names (a name
 * that was rebound to this address). With a token every request must carry it, in a header that no browser adds by
 * itself. See docs/decisions/0017.
 * @param options.token opens everything; without one the console is read-only
 * @param options.host the admin listener's own name, accepted as a Host besides addresses and localhost
 */
export function createAccess(options: { token: string | undefined; host: string; nowMs?: () => number }) {
  const nowMs = options.nowMs ?? Date.now;
  const expected = options.token === undefined ? undefined : digestOf(options.token);
  const wrong = new Map<string, { count: number; sinceMs: number }>();

  const countWrong = (address: string): void => {
    const entry = wrong.get(address);
    if (entry && nowMs() - entry.sinceMs < MINUTE_MS) {
      entry.count++;
      return;
    }
    wrong.delete(address);
    dropOldest(wrong, ADDRESSES_MAX);
    wrong.set(address, { count: 1, sinceMs: nowMs() });
  };

  function checkToken(req: IncomingMessage, token: Buffer): Entry {
    const address = req.socket.remoteAddress ?? "";
    const entry = wrong.get(address);
    const waitMs = entry ? entry.sinceMs + MINUTE_MS - nowMs() : 0;
    if (entry && entry.count >= WRONG_TOKENS_PER_MINUTE && waitMs > 0) {
      return {
        ...denied(429, "too many wrong tokens from this address; wait a minute"),
        retryAfterSeconds: Math.ceil(waitMs / 1000),
      };
    }
    const given = /^bearer +(\S+) *$/i.exec(req.headers.authorization ?? "")?.[1];
    if (given === undefined) return denied(401, "this needs the gateway's ADMIN_TOKEN");
    if (timingSafeEqual(digestOf(given), token)) return { outcome: "allowed" };
    countWrong(address);
    return { ...denied(401, "this is not the gateway's ADMIN_TOKEN"), wrongToken: true };
  }

  return {
    /** Whether actions are possible at all. */
    writable: expected !== undefined,
    /** @param write the request changes something */
    check(req: IncomingMessage, write: boolean): Entry {
      if (fromAnotherSite(req)) return denied(403, "requests of other sites are refused");
      if (expected) return checkToken(req, expected);
      if (!isOwnName(req.headers.host, options.host)) {
        return denied(403, "without ADMIN_TOKEN this answers to localhost or an IP address only");
      }
      if (!write) return { outcome: "allowed" };
      return denied(
        403,
        "read-only: set ADMIN_TOKEN (16 characters or more) in the gateway's environment and restart it",
      );
    },
  };
}

/** Fetch metadata where the browser sends it (to https and loopback), and Origin, which it sends with every POST. */
function fromAnotherSite({ headers, method }: IncomingMessage): boolean {
  const site = headers["sec-fetch-site"];
  // `none`: a person typed the address.
  if (site !== undefined && site !== "same-origin" && !(site === "none" && method === "GET")) return true;
  const { origin, host } = headers;
  if (origin === undefined) return false;
  return !URL.canParse(origin) || new URL(origin).host !== host?.toLowerCase();
}

function isOwnName(host: string | undefined, own: string): boolean {
  if (host === undefined || !URL.canParse(`http://${host}`)) return false;
  const name = new URL(`http://${host}`).hostname.replace(/^\[|\]$/g, "");
  return isIP(name) !== 0 || name === "localhost" || name.endsWith(".localhost") || name === own;
}

const digestOf = (text: string): Buffer => createHash("sha256").update(text).digest();
const denied = (status: 401 | 403 | 429, error: string): Denied => ({
  outcome: "denied",
  status,
  error,
});
