import { creationOfToken, listOfTokens, revocationOfToken } from "../admin/api/routes/tokens.ts";
import { Token } from "../admin/api/schemas.ts";
import { shownAs } from "../admin/api/shown.ts";
import { SCOPES } from "../domain/scopes.ts";
import { listTokens, type TokenRecord } from "../operations/access/tokens.ts";
import { flat, operationCommand, workCommand } from "./operation-command.ts";
import { group } from "./options.ts";
import { listing, paint } from "./terminal.ts";

const PAGE = 100;

export const tokensCommand = group("tokens", "tokens of the management API: make, list and end them", [
  operationCommand(creationOfToken, {
    name: "create",
    about: "make a token; it is shown once",
    options: {
      "--label <text>": "what it is for; it stands in audit and ledger",
      "--scopes <list>": `what it may do, with commas: ${SCOPES.join(", ")}`,
      "--accounts <list>": "the only accounts that it may use, with commas (default: all)",
      "--expires <time>": "when it ends, ISO 8601 (default: never)",
    },
    show({ token, record }) {
      const json = { token, ...flat(shownAs(Token, record)) };
      return {
        json,
        text: `${listing(json)}\n${paint("yellow", "Keep the token now: it is not shown again.")}`,
      };
    },
  }),
  workCommand(
    listOfTokens,
    async (_, nodes) => {
      const found: TokenRecord[] = [];
      let cursor: string | undefined;
      do {
        const page = await listTokens(nodes, { cursor, limit: PAGE });
        found.push(...page.tokens);
        cursor = page.next;
      } while (cursor !== undefined);
      return found;
    },
    {
      name: "list",
      about: "all tokens, newest first",
      show(tokens) {
        const rows = tokens.map((token) => flat(shownAs(Token, token)));
        const text =
          rows.length === 0 ? "There are no tokens." : rows.map((row) => listing(row)).join("\n\n");
        return { json: { tokens: rows }, text };
      },
    },
  ),
  operationCommand(revocationOfToken, {
    name: "revoke",
    about: "end a token, with all that were made with it, at once and for good",
    arguments: { "<token-id>": "the token's id, tok_..." },
    show: ({ tokenId }) => ({ text: `Token ${tokenId} is revoked.` }),
  }),
]);
