import { type Actor, actorText } from "../actor.ts";
import { recordOf } from "../ledger-entries.ts";
import { tokenNames } from "../names.ts";
import type { StoredToken } from "../records.ts";
import type { Script } from "../script-definition.ts";
import { fieldsAndValues } from "./change.ts";

export interface TokenCall {
  tokenId: string;
  action: "token.create" | "token.revoke";
  actor: Actor;
  /** How many tokens there may be. */
  most: number;
  /** Of a new one. */
  fields: Readonly<Record<string, string | number>>;
}

export type TokenReply =
  | { outcome: "created" | "revoked"; record: StoredToken }
  | { outcome: "full" | "missing" };

/** Creates a token of the management API, or revokes one. */
export const token: Script<TokenCall, TokenReply> = {
  name: "token",
  isBatched: false,
  keys: ({ tokenId }) => {
    const names = tokenNames(tokenId);
    return [names.token, names.tokens, names.tokenIds, names.endedTokens];
  },
  args: ({ tokenId, action, actor, most, fields }) => [
    tokenId,
    action,
    actorText(actor),
    most,
    ...fieldsAndValues(fields),
  ],
  read([outcome, , record]) {
    return outcome === "created" || outcome === "revoked"
      ? { outcome, record: recordOf(record as string[]) }
      : { outcome: outcome as "full" | "missing" };
  },
};
