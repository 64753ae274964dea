import { partitionNames } from "../records/names.ts";
import type { Script } from "./script-definition.ts";

/** Tells accounts of their keys that end soon. `taken`: how many were due, at most as many as were asked for. */
export const expiring: Script<{ partition: number; most: number }, { taken: number }> = {
  name: "expiring",
  keys: ({ partition }) => [partitionNames(partition).expiring],
  args: ({ most }) => [most],
  read: ([, taken]) => ({ taken: Number(taken) }),
};
