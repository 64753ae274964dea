import { type Actor, actorText } from "../records/actor.ts";
import { MAINTENANCE } from "../records/names.ts";
import { clockOf } from "./holds.ts";
import { fieldsAndValues } from "./keys.ts";
import type { Script } from "./script-definition.ts";

// Between gateways, by Redis: who has the lease of regular work, whether the store takes writes, and maintenance.

interface LeaseCall {
  name: string;
  holder: string;
  leaseMs: number;
}

/** Takes or renews the lease of work that one process at a time does. @returns true if it is taken */
export const workLease: Script<LeaseCall, boolean> = {
  name: "work-lease",
  isBatched: true,
  keys: ({ name }) => [name],
  args: ({ holder, leaseMs }) => [holder, leaseMs],
  read: ([outcome]) => outcome === "taken",
};

const LIFETIME_MS = 60_000;

/** Writes, so that a read-only replica counts as away. `name`: a Redis key that only this process writes. */
export const probe: Script<{ name: string }, { storeNowMs: number }> = {
  name: "probe",
  keys: ({ name }) => [name],
  args: () => [LIFETIME_MS],
  read: (reply) => ({ storeNowMs: clockOf(reply) }),
};

interface MaintenanceCall {
  actor: Actor;
  /** Null removes a field. */
  fields: Readonly<Record<string, string | number | null>>;
}

export const maintenance: Script<MaintenanceCall, { outcome: "changed" | "unchanged" }> = {
  name: "maintenance",
  keys: () => [MAINTENANCE],
  args: ({ actor, fields }) => [actorText(actor), ...fieldsAndValues(fields)],
  read: ([outcome]) => ({ outcome: outcome as "changed" | "unchanged" }),
};
