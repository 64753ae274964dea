import { Agent, request } from "undici";
import type { Check } from "../../checks/check.ts";
import { descriptorsCheck, proxiesCheck } from "../../checks/machine-checks.ts";
import type { Config } from "../../config/config.ts";
import { adminUrl } from "../config.ts";

const TIMEOUT_MS = 1000;

/** @param openFiles files and sockets that this process may open: what is known where no gateway runs */
export async function runningChecks(config: Config | undefined, openFiles: number): Promise<Check[]> {
  const page = config && (await readMetrics(config.admin));
  const running = Number(/^process_max_fds (\d+)/m.exec(page ?? "")?.[1] ?? 0);
  const whose = running > 0 ? "the running gateway" : "a gateway started like this command";
  return [
    descriptorsCheck(running || openFiles, whose),
    proxiesCheck(
      page === undefined ? undefined : Number(/^tollgate_untrusted_proxy_total (\d+)/m.exec(page)?.[1] ?? 0),
    ),
  ];
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
