import { Agent, request } from "undici";
import type { Config } from "../../config/config.ts";
import { adminUrl } from "../config.ts";
import { type Check, good, warning } from "./doctor-check.ts";

const TIMEOUT_MS = 1000;
/** Above it, a gateway has room for thousands of clients beside its connections to Redis and the upstream. */
const OPEN_FILES_WANTED = 4096;

/** @param openFiles files and sockets that this process may open: what is known where no gateway runs */
export async function runningChecks(config: Config | undefined, openFiles: number): Promise<Check[]> {
  const page = config && (await readMetrics(config.admin));
  return [descriptorsCheck(page, openFiles), proxiesCheck(page)];
}

function descriptorsCheck(page: string | undefined, openFiles: number): Check {
  const running = Number(/^process_max_fds (\d+)/m.exec(page ?? "")?.[1] ?? 0);
  const limit = running || openFiles;
  const whose = running > 0 ? "the running gateway" : "a gateway started like this command";
  const found = `${whose} may open ${limit} files and sockets`;
  if (limit >= OPEN_FILES_WANTED) return good("descriptors", found);
  return warning(
    "descriptors",
    `${found}, so it takes few clients at a time`,
    "raise the limit to 16384 or more: LimitNOFILE of a systemd unit, ulimits of a container, ulimit -n of a shell",
  );
}

function proxiesCheck(page: string | undefined): Check {
  const name = "proxies";
  if (page === undefined)
    return good(name, "no gateway answers at the admin port, so nothing is known of proxies");
  const count = Number(/^tollgate_untrusted_proxy_total (\d+)/m.exec(page)?.[1] ?? 0);
  if (count === 0) return good(name, "no X-Forwarded-For came from an address that is not trusted");
  return warning(
    name,
    `${count} good keys came with an X-Forwarded-For from an address that is not in server.trust_proxy`,
    "put the load balancer's address or range into server.trust_proxy; the gateway's log names it (peer)",
  );
}

/** The metrics page of a running gateway; undefined where none answers, or where it wants a client certificate. */
async function readMetrics(admin: Config["admin"]): Promise<string | undefined> {
  // Its certificate is made for a name, and this is an address. Nothing is sent that it could keep.
  const dispatcher = new Agent({ connect: { rejectUnauthorized: false } });
  try {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const { body } = await request(`${adminUrl(admin)}/metrics`, { dispatcher, signal });
    return await body.text();
  } catch {
    return undefined;
  } finally {
    await dispatcher.destroy();
  }
}
