import { setTimeout as pause } from "node:timers/promises";
import { type Measured, REACH } from "./criteria.ts";
import type { AttackedGateway } from "./gateway.ts";
import type { Sample } from "./honest.ts";

const LIVEZ_EACH_MS = 250;
const LIVEZ_TIMEOUT_MS = 5000;
/** Of the honest customer, which never stops. */
const IN_FLIGHT_MAX = 5;
const CONNECTIONS_MAX = 70;
/** As many honest requests in a row as come in a second. */
const LATEST = 25;
const LATEST_AGE_MS_MAX = 500;

/** Asks for `/livez` all the time, each time on a new connection, as an orchestrator does. */
export function watchLivez({ adminUrl }: AttackedGateway): { stop(): Promise<Measured["livez"]> } {
  const seen = { requests: 0, failed: 0, slowestMs: 0 };
  let stopped = false;
  const watching = (async () => {
    while (!stopped) {
      const fromMs = performance.now();
      const response = await fetch(`${adminUrl}/livez`, {
        headers: { connection: "close" },
        signal: AbortSignal.timeout(LIVEZ_TIMEOUT_MS),
      }).catch(() => undefined);
      await response?.text().catch(() => undefined);
      seen.requests++;
      if (response?.status !== 200) seen.failed++;
      seen.slowestMs = Math.max(seen.slowestMs, performance.now() - fromMs);
      await pause(LIVEZ_EACH_MS);
    }
  })();
  return {
    async stop() {
      stopped = true;
      await watching;
      return seen;
    },
  };
}

/** True if the gateway is ready, holds nothing of the attack any more, and serves the honest customer in time. */
export async function isBack({ adminUrl }: AttackedGateway, samples: readonly Sample[]): Promise<boolean> {
  const ask = (path: string): Promise<Response | undefined> =>
    fetch(`${adminUrl}${path}`, { signal: AbortSignal.timeout(LIVEZ_TIMEOUT_MS) }).catch(() => undefined);
  const ready = await ask("/readyz");
  if (ready?.status !== 200) return false;
  const page = await (await ask("/metrics"))?.text().catch(() => undefined);
  if (page === undefined) return false;
  const value = (name: string): number =>
    Number(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\d+)`, "m").exec(page)?.[1] ?? 0);
  if (value("tollgate_requests_in_flight") > IN_FLIGHT_MAX) return false;
  if (value("tollgate_connections") > CONNECTIONS_MAX) return false;
  if (value("tollgate_uploads_in_flight") > IN_FLIGHT_MAX) return false;
  if (value("tollgate_store_calls_waiting") > 0 || value("tollgate_store_outbox_entries") > 0) return false;
  const latest = samples.slice(-LATEST);
  if (Date.now() - (latest.at(-1)?.dueMs ?? 0) > LATEST_AGE_MS_MAX) return false;
  return latest.every(({ status, tookMs }) => status === 200 && tookMs <= REACH.honestP99Ms);
}
