import { keyNames, partitionNames } from "../names.ts";
import type { Script } from "../script-definition.ts";

export interface ChangeCall {
  keyId: string;
  partition: number;
  /** Nothing is changed if the record has this field. */
  unless?: string;
  /** Null removes a field. */
  fields: Readonly<Record<string, string | number | null>>;
}

/** Changes fields of a key's record. */
export const change: Script<ChangeCall, { outcome: "changed" | "kept" }> = {
  name: "change",
  isBatched: false,
  keys: ({ partition, keyId }) => [keyNames(partition, keyId).key, partitionNames(partition).tiers],
  args: ({ unless = "", fields }) => [
    unless,
    ...Object.entries(fields).flatMap(([field, value]) => [field, value ?? ""]),
  ],
  read: ([outcome]) => ({ outcome: outcome as "changed" | "kept" }),
};
