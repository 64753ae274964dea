import { exceededRight } from "../../../domain/scopes.ts";
import {
  createToken,
  listTokens,
  type Maker,
  noToken,
  readToken,
  revokeToken,
  type TokenRecord,
  tokenOfId,
} from "../../../operations/access/tokens.ts";
import { badCursor } from "../../../records/cursors.ts";
import type { RedisNodes } from "../../../redis/store-facts.ts";
import type { Grantee } from "../authorize.ts";
import * as t from "../field-schemas.ts";
import { operation, page, route } from "../route.ts";
import { NewToken, Token, WhoAmI } from "../schemas.ts";

/** A token may see and end another one that has nothing that it lacks. */
export const isSeenBy = (grantee: Grantee, token: TokenRecord): boolean =>
  exceededRight(grantee, token) === undefined;

const whoAmI = route("GET /whoami", {
  tag: "Tokens",
  scope: "any",
  name: "whoAmI",
  summary: "What this token may do",
  description: "`token_id` is null for the gateway's `ADMIN_TOKEN`, which has all scopes.",
  answers: { 200: { description: "Its rights.", schema: WhoAmI } },
  run: async ({ grantee }) => ({ status: 200, body: grantee }),
});

export const creationOfToken = operation("POST /tokens", {
  scope: "tokens:write",
  name: "createToken",
  summary: "Create a token",
  description:
    "It is in the answer once. A token cannot make one with more scopes, for more accounts or for longer than it has. One that a token made ends with it.",
  body: NewToken,
  answers: { 201: { description: "The token, with the token itself.", schema: Token } },
  refusals: [409],
  operate(nodes, { body, grantee, actor }, { bounds }) {
    const { label, scopes, accounts, expires_at: expiresAt } = body;
    const options = {
      label,
      scopes,
      accounts: accounts ?? undefined,
      expiresAtMs: expiresAt ? Date.parse(expiresAt) : undefined,
    };
    return createToken(nodes, options, actor, makerOf(grantee, bounds().tokensPerToken));
  },
  answer: ({ record, token }) => ({ status: 201, body: { ...record, token } }),
});

function makerOf({ tokenId, root, ...rights }: Grantee, familyMost = 0): Maker | undefined {
  return tokenId === undefined || root === undefined ? undefined : { tokenId, root, ...rights, familyMost };
}

export const listOfTokens = operation("GET /tokens", {
  scope: "tokens:write",
  name: "listTokens",
  summary: "List tokens",
  description:
    "Newest first, with those that are revoked or expired. A token sees those that have nothing that it lacks: no other scope, no other account, no later end. Its pages may have fewer rows.",
  query: t.object({
    ...t.paging,
    token_id: t.optional(t.upTo(100, "This one only; it is the only page.")),
  }),
  answers: { 200: { description: "Tokens, without the tokens themselves.", schema: t.pageOf(Token) } },
  async operate(nodes, { query: { token_id: tokenId, cursor, limit = t.LIMIT_DEFAULT }, grantee }) {
    const { tokens, next } = await (tokenId === undefined
      ? listTokens(nodes, { cursor, limit })
      : onlyToken(nodes, tokenId, cursor));
    return { tokens: tokens.filter((token) => isSeenBy(grantee, token)), next };
  },
  answer: ({ tokens, next }) => page(tokens, next),
});

async function onlyToken(nodes: RedisNodes, tokenId: string, cursor: string | undefined) {
  if (cursor !== undefined) throw badCursor();
  const token = await tokenOfId(nodes, tokenId);
  return { tokens: token ? [token] : [], next: undefined };
}

export const revocationOfToken = operation("POST /tokens/{token}/revoke", {
  scope: "tokens:write",
  name: "revokeToken",
  ends: () => true,
  summary: "Revoke a token",
  description:
    "At once and for good, with all tokens that were made with it, directly or not. A token that has more than this one is not found. A repeat changes nothing.",
  answers: { 200: { description: "The token as it is now.", schema: Token } },
  async operate(nodes, { params, grantee, actor }) {
    const token = await readToken(nodes, params.token!);
    if (!isSeenBy(grantee, token)) throw noToken(token.tokenId);
    return revokeToken(nodes, token.tokenId, actor);
  },
  answer: (token) => ({ status: 200, body: token }),
});

export const tokenRoutes = [whoAmI, creationOfToken, listOfTokens, revocationOfToken];
