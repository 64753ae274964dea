import { labelProblem } from "../../domain/operator-texts.ts";
import type { Actor } from "../../records/actor.ts";
import { MAINTENANCE } from "../../records/names.ts";
import { OperatorError } from "../../records/operator-error.ts";
import type { MaintenanceFields } from "../../records/records.ts";
import type { Connection } from "../../redis/connection.ts";
import { repeated } from "../../redis/repeated-work.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import type { RedisNodes } from "../../redis/store-facts.ts";
import { maintenance } from "../../scripts/gateways.ts";
import type { Logger } from "../../telemetry/log.ts";

const LOOK_EVERY_MS = 1000;

export const RETRY_AFTER_DEFAULT = 60;
export const RETRY_AFTER_MAX = 86_400;
export const RETRY_AFTER_RULE = `retry_after must be a whole number of seconds from 1 to ${RETRY_AFTER_MAX}, which is a day`;

/** While it lasts, gateways refuse generations and uploads. */
export interface Maintenance {
  /** As customers are told, with each refusal. */
  retryAfterSeconds: number;
  /** For customers; undefined for the usual words. */
  message: string | undefined;
  sinceMs: number;
}

function maintenanceOf(record: MaintenanceFields): Maintenance | undefined {
  if (record.on !== "1") return undefined;
  return {
    retryAfterSeconds: Number(record.retry_after ?? RETRY_AFTER_DEFAULT),
    message: record.message,
    sinceMs: Number(record.since ?? 0),
  };
}

export const readMaintenance = async (nodes: RedisNodes): Promise<Maintenance | undefined> =>
  maintenanceOf(await nodes.ofName(MAINTENANCE).hgetall(MAINTENANCE));

/** Every gateway follows within two seconds. Unchanged values leave no audit record. @throws OperatorError `invalid` */
export async function setMaintenance(
  nodes: RedisNodes,
  wanted: { on: boolean; retryAfterSeconds?: number | undefined; message?: string | null | undefined },
  actor: Actor,
): Promise<Maintenance | undefined> {
  const { on, message, retryAfterSeconds = RETRY_AFTER_DEFAULT } = wanted;
  const problem = message ? labelProblem(message) : undefined;
  if (problem !== undefined)
    throw new OperatorError(problem.replace("a label", "a message"), "invalid", "message");
  const redis = nodes.ofName(MAINTENANCE);
  nodes.requireWritable?.([redis]);
  const fields = on
    ? { on: "1", retry_after: String(retryAfterSeconds), message: message ?? null }
    : { on: null, retry_after: null, message: null, since: null };
  await scriptsOf(redis).run(maintenance, { fields, actor });
  return readMaintenance(nodes);
}

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
  return {
    state,
    start(): void {
      // The first look-up of a key comes after this one, so no request passes a gateway that starts during maintenance.
      void connection.usable().then(look).catch(failed);
      start();
    },
    stop,
  };
}
