import { webhookNames } from "../records/names.ts";
import type { Script } from "./script-definition.ts";

interface CleanDeliveriesCall {
  partition: number;
  keepMs: number;
  most: number;
}

/** Forgets old deliveries, and those of deleted endpoints. `isMore`: another call has something to do. */
export const cleanDeliveries: Script<CleanDeliveriesCall, { cleaned: number; isMore: boolean }> = {
  name: "clean-deliveries",
  keys: ({ partition }) => [webhookNames(partition).clean],
  args: ({ keepMs, most }) => [keepMs, most],
  read: ([, , cleaned, more]) => ({ cleaned: Number(cleaned ?? 0), isMore: Number(more) === 1 }),
};
