import { randomBytes } from "node:crypto";
import type { Tiers } from "../../src/domain/limits.ts";
import type { KeyRef } from "../../src/records/names.ts";
import type { Generation, NewTask } from "../../src/scripts/holds.ts";
import type { Holds } from "../../src/settlement/holds.ts";
import { GENERATION } from "../requests.ts";

/** The tiers of config/tollgate.yaml. */
export const TIERS: Tiers = {
  standard: { rate_limit: 20, max_concurrent: 3, daily_limit: 500 },
  enterprise: { rate_limit: 100, max_concurrent: 10, daily_limit: 10_000 },
};

/** As many as a busy gateway has under way. */
const AT_A_TIME = 64;
const RUN = randomBytes(4).toString("hex");
let count = 0;

/** A generation as the gateway would ask for it, ids as long as its own. */
export const generationOf = (key: KeyRef): Generation => ({
  requestId: `req_${Date.now().toString(36)}${RUN}${(count++).toString(36).padStart(6, "0")}`,
  key,
  price: 10,
  endpoint: GENERATION.path,
  holdMs: 103_000,
  // Ended tasks may be collected at once; nothing here asks for them later.
  retentionMs: 0,
});

/** The arguments of BIND for this task id. @param pollMs when the sweeper may ask for it, ms from now */
export const newTask = (taskId: string, pollMs: number): NewTask => ({
  taskId,
  data: "",
  pollMs,
  maxAgeMs: 2 * 3_600_000,
  upstream: "http://127.0.0.1:9000",
});

export const newTaskId = (): string => randomBytes(16).toString("hex");

/** Admits a generation. @throws when it was refused */
export async function admit(store: Pick<Holds, "admit">, key: KeyRef): Promise<Generation> {
  const generation = generationOf(key);
  const { outcome } = await store.admit(generation, TIERS);
  if (outcome !== "admitted") throw new Error(`a generation was ${outcome}`);
  return generation;
}

/** Runs a step for each item, so many at a time as a gateway would. */
export async function each<T>(items: Iterable<T>, step: (item: T) => Promise<unknown>): Promise<void> {
  const iterator = items[Symbol.iterator]();
  const lane = async (): Promise<void> => {
    for (let next = iterator.next(); !next.done; next = iterator.next()) await step(next.value);
  };
  await Promise.all(Array.from({ length: AT_A_TIME }, lane));
}
