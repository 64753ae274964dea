import { listOfAudit } from "../admin/api/routes/audit.ts";
import { creationOfToken, listOfTokens, revocationOfToken } from "../admin/api/routes/tokens.ts";
import { Token } from "../admin/api/schemas.ts";
import { shownAs } from "../admin/api/shown.ts";
import { SCOPES } from "../domain/scopes.ts";
import { listTokens, type TokenRecord } from "../operations/access/tokens.ts";
import { flat, listed, operationCommand, PERIOD, paging, timeIn, workCommand } from "./operation-command.ts";
import { group, whole } from "./options.ts";
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

const LIMIT_MAX = 1000;

export const auditCommand = operationCommand(listOfAudit, {
  name: "audit",
  about: "what operators changed, the latest first",
  options: {
    "--account <id>": "of this account only",
    "--by <name>": "of this person or token only",
    "--action <name>": "of this action only, such as credits.grant",
    ...PERIOD,
    ...paging(50, whole(1, LIMIT_MAX)),
  },
  show: listed(
    "records",
    {
      ...{ TIME: timeIn("at"), BY: "by", ACTION: "action", ACCOUNT: "account_id" },
      TARGET: (row) => (row.target === row.account_id ? "" : (row.target ?? "")),
      CHANGE: changeOf,
    },
    ["CHANGE"],
  ),
});

/** Such as `tier gold -> iron, label web -> none`. */
function changeOf({ before, after }: { before?: unknown; after?: unknown }): string {
  const [old, now] = [before ?? {}, after ?? {}] as [Record<string, unknown>, Record<string, unknown>];
  const inWords = (value: unknown): string =>
    typeof value === "object" && value !== null ? JSON.stringify(value) : String(value ?? "none");
  return Object.entries(now)
    .map(([name, value]) => `${name} ${name in old ? `${inWords(old[name])} -> ` : ""}${inWords(value)}`)
    .join(", ");
}
