import { clockOf, type Script } from "../script.ts";

const LIFETIME_MS = 60_000;

/** Writes, so that a read-only replica counts as away. `name`: of a key of the prober's own. */
export const probe: Script<{ name: string }, { storeNowMs: number }> = {
  name: "probe",
  isBatched: false,
  keys: ({ name }) => [name],
  args: () => [LIFETIME_MS],
  read: (reply) => ({ storeNowMs: clockOf(reply) }),
};
