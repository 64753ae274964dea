import { clockOf } from "./include/limits.ts";
import type { Script } from "./script-definition.ts";

const LIFETIME_MS = 60_000;

/** Writes, so that a read-only replica counts as away. `name`: a Redis key that only this process writes. */
export const probe: Script<{ name: string }, { storeNowMs: number }> = {
  name: "probe",
  keys: ({ name }) => [name],
  args: () => [LIFETIME_MS],
  read: (reply) => ({ storeNowMs: clockOf(reply) }),
};
