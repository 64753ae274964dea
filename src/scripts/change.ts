import { type Actor, actorText } from "../records/actor.ts";
import { keyNames, partitionNames } from "../records/names.ts";
import type { Script } from "./script-definition.ts";

interface ChangeCall {
  keyId: string;
  partition: number;
  /** Nothing is changed if the record has this field. */
  unless?: string;
  /** Nothing is changed if the record has another revision. */
  ifRevisions?: readonly number[] | undefined;
  /** Null removes a field. */
  fields: Readonly<Record<string, string | number | null>>;
  action?: "key.patch" | "key.rotate";
  actor: Actor;
}

type Changed =
  | { outcome: "changed"; revision: number }
  | { outcome: "unchanged" | "kept" | "stale" | "missing" };

export const change: Script<ChangeCall, Changed> = {
  name: "change",
  keys: ({ partition, keyId }) => [keyNames(partition, keyId).key, partitionNames(partition).tiers],
  args: ({ unless = "", ifRevisions = [], action = "key.patch", actor, fields }) => [
    unless,
    ifRevisions.join(),
    actorText(actor),
    action,
    ...fieldsAndValues(fields),
  ],
  read([outcome, , revision]) {
    if (outcome === "changed") return { outcome, revision: Number(revision) };
    return { outcome: outcome as "unchanged" | "kept" | "stale" | "missing" };
  },
};

/** Fields as lua/include/changes.lua takes them. Null removes one. */
export const fieldsAndValues = (fields: Readonly<Record<string, string | number | null>>) =>
  Object.entries(fields).flatMap(([field, value]) => [field, value ?? ""]);
