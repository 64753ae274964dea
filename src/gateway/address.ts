import { BlockList, isIP } from "node:net";
import type { Logger } from "../telemetry/log.ts";

export type ClientAddress = (peer: string | undefined, forwardedFor: string | undefined) => string;

/** Matches addresses against addresses and CIDR ranges (`server.trust_proxy`). */
export function trustedProxies(trusted: readonly string[]): (address: string | undefined) => boolean {
  const proxies = new BlockList();
  for (const range of trusted) {
    const [address = "", bits] = range.split("/");
    const family = isIP(address) === 6 ? "ipv6" : "ipv4";
    if (bits === undefined) proxies.addAddress(address, family);
    else proxies.addSubnet(address, Number(bits), family);
  }
  return (given) => {
    if (trusted.length === 0) return false;
    const address = plain(given ?? "");
    return isIP(address) !== 0 && proxies.check(address, isIP(address) === 6 ? "ipv6" : "ipv4");
  };
}

/** Reads X-Forwarded-For from the right: the first hop not in `trusted` (addresses, CIDR ranges) is the client, an IPv6 one by its /64. */
export function clientAddress(trusted: readonly string[]): ClientAddress {
  const exact = exactAddress(trusted);
  return (peer, forwardedFor) => {
    const client = exact(peer, forwardedFor);
    return isIP(client) === 6 ? prefix64(client) : client;
  };
}

/** The client as `clientAddress` finds it, without its zone; its whole address. */
export function exactAddress(trusted: readonly string[]): ClientAddress {
  const isTrusted = trustedProxies(trusted);

  return (peer, forwardedFor) => {
    let client = plain(peer ?? "");
    if (trusted.length > 0 && forwardedFor !== undefined) {
      const hops = forwardedFor.split(",").map((hop) => plain(hop.trim()));
      while (isTrusted(client) && hops.length > 0) {
        const hop = hops.pop()!;
        if (isIP(hop) === 0) break;
        client = hop;
      }
    }
    return client.split("%")[0]!;
  };
}

/** Removes the port that some proxies add, and the IPv6 prefix of a mapped IPv4 address. */
function plain(hop: string): string {
  const address = /^\[(.+)\](?::\d+)?$/.exec(hop)?.[1] ?? /^([\d.]+):\d+$/.exec(hop)?.[1] ?? hop;
  return /^::ffff:[\d.]+$/i.test(address) ? address.slice(7) : address;
}

function prefix64(address: string): string {
  const [head = "", tail = ""] = address.split("%")[0]!.split("::");
  const left = head === "" ? [] : head.split(":");
  const right = tail === "" ? [] : tail.split(":");
  const groups = address.includes("::")
    ? [...left, ...Array(8 - left.length - right.length).fill("0"), ...right]
    : left;
  return `${groups
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(":")}::/64`;
}

const WARN_EVERY_MS = 3_600_000;

/** Warns of a proxy that is not in `server.trust_proxy`, at most once an hour. @param count counts each such request */
export function createUntrustedProxyNotice(
  log: Logger,
  count: () => void,
  nowMs: () => number = () => performance.now(),
): (peer: string) => void {
  let warnedAtMs = Number.NEGATIVE_INFINITY;
  return (peer) => {
    count();
    if (nowMs() - warnedAtMs < WARN_EVERY_MS) return;
    warnedAtMs = nowMs();
    log.warn(
      { peer },
      "X-Forwarded-For comes from an address that is not in server.trust_proxy: all customers behind it count as one address",
    );
  };
}
