import { keyNames } from "../names.ts";
import type { Script } from "../script-definition.ts";

/** What CONVERT knows, by the third part of its name. */
export const CONVERTIBLE = ["accounts", "keys", "checkpoint", "references"] as const;

export interface ConvertCall {
  name: string;
  kind: (typeof CONVERTIBLE)[number];
  partition: number;
}

/** `kept`: it is in layout 4, or does not exist. */
export type Converted = "converted" | "kept";

/** Brings one record or list of layout 2 or 3 to layout 4. */
export const convert: Script<ConvertCall, { outcome: Converted }> = {
  name: "convert",
  isBatched: true,
  keys: ({ name }) => [name],
  args: ({ kind, partition }) => [kind, keyNames(partition, "").key],
  read: ([outcome]) => ({ outcome: outcome as Converted }),
};
