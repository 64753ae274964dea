import { type Actor, actorText } from "../records/actor.ts";
import { keyNames, partitionNames } from "../records/names.ts";
import type { Script } from "./script-definition.ts";

interface RevokeCall {
  keyId: string;
  partition: number;
  actor: Actor;
}

export const revoke: Script<RevokeCall, "revoked" | "already_revoked" | "missing"> = {
  name: "revoke",
  keys: ({ partition, keyId }) => [keyNames(partition, keyId).key, partitionNames(partition).tiers],
  args: ({ keyId, actor }) => [keyId, actorText(actor)],
  read: ([outcome]) => outcome as "revoked" | "already_revoked" | "missing",
};
