import { type Check, good, warning } from "./check.ts";

/** Above it, a gateway has room for thousands of clients beside its connections to Redis and the upstream. */
const OPEN_FILES_WANTED = 4096;

/** @param limit of files and sockets @param whose the process in words */
export function descriptorsCheck(limit: number, whose: string): Check {
  const found = `${whose} may open ${limit} files and sockets`;
  if (limit >= OPEN_FILES_WANTED) return good("descriptors", found);
  return warning(
    "descriptors",
    `${found}, so it takes few clients at a time`,
    "raise the limit to 16384 or more: LimitNOFILE of a systemd unit, ulimits of a container, ulimit -n of a shell",
  );
}

/** @param count valid keys that came with an X-Forwarded-For from an address that is not trusted; undefined if no gateway says */
export function proxiesCheck(count: number | undefined): Check {
  const name = "proxies";
  if (count === undefined)
    return good(name, "no gateway answers at the admin port, so nothing is known of proxies");
  if (count === 0) return good(name, "no X-Forwarded-For came from an address that is not trusted");
  return warning(
    name,
    `${count} good keys came with an X-Forwarded-For from an address that is not in server.trust_proxy`,
    "put the load balancer's address or range into server.trust_proxy; the gateway's log names it (peer)",
  );
}
