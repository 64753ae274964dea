import { type Maintenance, maintenanceOf } from "../operations/store/maintenance.ts";
import { MAINTENANCE } from "../records/names.ts";
import type { Connection } from "../redis/connection.ts";
import { repeated } from "../redis/repeated-work.ts";
import type { Logger } from "../telemetry/log.ts";

const LOOK_EVERY_MS = 1000;

/** Reads once a second, so that a request costs nothing. While the store is away it is as it was. */
export function createMaintenanceWatch({ connection, log }: { connection: Connection; log: Logger }) {
  const state: { current: Maintenance | undefined } = { current: undefined };

  async function look(): Promise<void> {
    const before = state.current;
    const record = await connection.ofName(MAINTENANCE).command((redis) => redis.hgetall(MAINTENANCE));
    const current = maintenanceOf(record);
    state.current = current;
    if (current && !before) log.warn({ ...current }, "maintenance: generations and uploads are refused");
    if (!current && before) log.warn("maintenance is over");
  }

  const failed = (error: unknown): void => log.debug({ err: error }, "maintenance was not read");
  const { start, stop } = repeated(look, { pauseMs: () => LOOK_EVERY_MS, failed });
  return { state, start: () => start(), stop };
}
