import type { Config } from "../config/config.ts";
import { type Check, good, warning } from "./doctor-check.ts";

const NAME = "proxies";
const TIMEOUT_MS = 1000;

/** Asks the gateway that runs with this config, if there is one, whether a proxy in front of it is not trusted. */
export async function proxiesCheck(admin: Config["admin"] | undefined): Promise<Check> {
  const page = admin && (await readMetrics(admin));
  if (page === undefined)
    return good(NAME, "no gateway answers at the admin port, so nothing is known of proxies");
  const count = Number(/^tollgate_untrusted_proxy_total (\d+)/m.exec(page)?.[1] ?? 0);
  if (count === 0) return good(NAME, "no X-Forwarded-For came from an address that is not trusted");
  return warning(
    NAME,
    `${count} good keys came with an X-Forwarded-For from an address that is not in server.trust_proxy`,
    "put the load balancer's address or range into server.trust_proxy; the gateway's log names it (peer)",
  );
}

/** The metrics page of a running gateway; undefined where none answers. */
async function readMetrics({ host, port }: Config["admin"]): Promise<string | undefined> {
  const reachable = host === "0.0.0.0" ? "127.0.0.1" : host === "::" ? "[::1]" : host;
  try {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    return await (await fetch(`http://${reachable}:${port}/metrics`, { signal })).text();
  } catch {
    return undefined;
  }
}
