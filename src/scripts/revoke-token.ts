import { type Actor, actorText } from "../records/actor.ts";
import { recordOf } from "../records/ledger-entries.ts";
import { tokenNames } from "../records/names.ts";
import type { StoredToken } from "../records/records.ts";
import type { Script } from "./script-definition.ts";

interface RevokeTokenCall {
  tokenId: string;
  /** The first token of its family. */
  root: string;
  actor: Actor;
}

/** `left`: how many of those that were made with it have not ended yet. */
type RevokeTokenReply = { outcome: "revoked"; record: StoredToken; left: number } | { outcome: "missing" };

/** Revokes a token, and some of those that were made with it, also while Redis has no memory left. */
export const revokeToken: Script<RevokeTokenCall, RevokeTokenReply> = {
  name: "revoke-token",
  keys: ({ tokenId, root }) => {
    const { token, tokenIds, endedTokens } = tokenNames(tokenId);
    return [token, tokenIds, endedTokens, tokenNames(root).family, tokenNames("").family];
  },
  args: ({ tokenId, actor }) => [tokenId, actorText(actor)],
  read: ([outcome, , record, left]) =>
    outcome === "revoked"
      ? { outcome, record: recordOf(record as string[]), left: Number(left) }
      : { outcome: outcome as "missing" },
};
