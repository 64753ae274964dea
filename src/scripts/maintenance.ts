import { type Actor, actorText } from "../records/actor.ts";
import { MAINTENANCE } from "../records/names.ts";
import { fieldsAndValues } from "./change.ts";
import type { Script } from "./script-definition.ts";

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
