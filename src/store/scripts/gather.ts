import { accountNames, keyNames } from "../names.ts";
import type { Script } from "../script-definition.ts";

export interface GatherCall {
  partition: number;
  accountId: string;
  keyIds: readonly string[];
}

/** Adds the open slots of some keys to those of their account, if it has limits over all its keys. */
export const gather: Script<GatherCall, { outcome: "gathered" | "unlimited" }> = {
  name: "gather",
  isBatched: false,
  keys({ partition, accountId }) {
    const { account, slots } = accountNames(partition, accountId);
    return [account, slots];
  },
  args: ({ partition, keyIds }) => [keyNames(partition, "").slots, ...keyIds],
  read: ([outcome]) => ({ outcome: outcome as "gathered" | "unlimited" }),
};
