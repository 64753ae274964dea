import { type Actor, actorText } from "../records/actor.ts";
import { recordOf } from "../records/ledger-entries.ts";
import { tokenNames } from "../records/names.ts";
import type { StoredToken } from "../records/records.ts";
import { fieldsAndValues } from "./keys.ts";
import type { Script } from "./script-definition.ts";

interface TokenCall {
  tokenId: string;
  actor: Actor;
  /** The token that it is made with, and the first of its family; undefined if operators make it. */
  parent?: { tokenId: string; root: string } | undefined;
  /** How many tokens there may be; how many operators may have made. */
  most: number;
  /** How many may be made with one token, directly or not. */
  familyMost: number;
  fields: Readonly<Record<string, string | number>>;
}

type TokenReply =
  | { outcome: "created"; record: StoredToken }
  | { outcome: "full" | "family_full" | "parent_ended" };

export const token: Script<TokenCall, TokenReply> = {
  name: "token",
  keys: ({ tokenId, parent }) => {
    const names = tokenNames(tokenId);
    return [
      names.token,
      names.tokens,
      names.tokenIds,
      names.endedTokens,
      tokenNames(parent?.root ?? "").family,
      parent ? tokenNames(parent.tokenId).token : names.token,
    ];
  },
  args: ({ tokenId, actor, parent, most, familyMost, fields }) => [
    tokenId,
    actorText(actor),
    parent?.tokenId ?? "",
    most,
    familyMost,
    ...fieldsAndValues({ ...fields, ...(parent && { parent: parent.tokenId, root: parent.root }) }),
  ],
  read([outcome, , record]) {
    return outcome === "created"
      ? { outcome, record: recordOf(record as string[]) }
      : { outcome: outcome as "full" | "family_full" | "parent_ended" };
  },
};

interface RevokeTokenCall {
  tokenId: string;
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
