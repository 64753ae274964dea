import { actorText } from "../records/actor.ts";
import { accountNames } from "../records/names.ts";
import { type AccountCall, type AccountReply, readAccountReply } from "./account.ts";
import type { Script } from "./script-definition.ts";

type SuspendCall = Omit<AccountCall, "action" | "fields"> & { status: "suspended" | "closed" };

export const suspend: Script<SuspendCall, AccountReply> = {
  name: "suspend",
  keys: ({ partition, accountId }) => [accountNames(partition, accountId).account],
  args: ({ accountId, status, ifRevisions = [], mayReinstate, actor }) => [
    accountId,
    status,
    ifRevisions.join(),
    mayReinstate ? 1 : 0,
    actorText(actor),
  ],
  read: readAccountReply,
};
