import { Command, InvalidArgumentError } from "commander";
import { SCOPES, type Scope } from "../domain/scopes.ts";
import { createToken, listTokens, revokeToken, type TokenRecord } from "../operations/access/tokens.ts";
import { type ActorFlags, actorOf, changing, command, futureMs } from "./options.ts";
import { print } from "./output.ts";
import { withRedis, withRedisToWrite } from "./redis.ts";
import { iso, listing, paint } from "./terminal.ts";

const PAGE = 100;

interface NewTokenFlags extends ActorFlags {
  label: string;
  scopes: Scope[];
  accounts?: string[];
  expires?: number;
  json?: boolean;
}

/** `tollgate tokens ...` */
export function tokensCommand(): Command {
  return new Command("tokens")
    .description("tokens of the management API: make, list and end them")
    .addCommand(createCommand())
    .addCommand(listCommand())
    .addCommand(revokeCommand());
}

function createCommand(): Command {
  return changing("create", "make a token; it is shown once")
    .requiredOption("--label <text>", "what it is for; it stands in audit and ledger")
    .requiredOption("--scopes <list>", `what it may do, with commas: ${SCOPES.join(", ")}`, scopes)
    .option("--accounts <list>", "the only accounts that it may use, with commas (default: all)", words)
    .option("--expires <time>", "when it ends, ISO 8601 (default: never)", futureMs)
    .action(async (flags: NewTokenFlags) => {
      const { label, accounts, expires: expiresAtMs } = flags;
      const options = { label, scopes: flags.scopes, accounts, expiresAtMs };
      const { result, confirmed } = await withRedisToWrite((nodes) =>
        createToken(nodes, options, actorOf(flags)),
      );
      const json = { token: result.token, ...shown(result.record) };
      const text = `${listing(json)}\n${paint("yellow", "Keep the token now: it is not shown again.")}`;
      print({ json, text, confirmed }, flags);
    });
}

function listCommand(): Command {
  return command("list", "all tokens, newest first").action(async (flags: { json?: boolean }) => {
    const tokens = await withRedis(async (nodes) => {
      const found: TokenRecord[] = [];
      let cursor: string | undefined;
      do {
        const page = await listTokens(nodes, { cursor, limit: PAGE });
        found.push(...page.tokens);
        cursor = page.next;
      } while (cursor !== undefined);
      return found;
    });
    const rows = tokens.map(shown);
    const text = rows.length === 0 ? "There are no tokens." : rows.map((row) => listing(row)).join("\n\n");
    print({ json: { tokens: rows }, text }, flags);
  });
}

function revokeCommand(): Command {
  return changing("revoke", "end a token, with all that were made with it, at once and for good")
    .argument("<token-id>", "the token's id, tok_...")
    .action(async (id: string, flags: ActorFlags & { json?: boolean }) => {
      const { result, confirmed } = await withRedisToWrite((nodes) => revokeToken(nodes, id, actorOf(flags)));
      const text = `Token ${id} is revoked.`;
      print({ json: shown(result), text, confirmed }, flags);
    });
}

const shown = ({ tokenId, label, scopes, accounts, parent, ...times }: TokenRecord) => ({
  token_id: tokenId,
  label,
  scopes: scopes.join(","),
  accounts: accounts?.join(","),
  parent,
  created_at: iso(times.createdAtMs),
  expires_at: times.expiresAtMs === undefined ? undefined : iso(times.expiresAtMs),
  revoked_at: times.revokedAtMs === undefined ? undefined : iso(times.revokedAtMs),
});

const words = (text: string): string[] => text.split(",").map((word) => word.trim());

function scopes(text: string): Scope[] {
  return words(text).map((word) => {
    const scope = SCOPES.find((one) => one === word);
    if (scope) return scope;
    throw new InvalidArgumentError(`There is no scope ${word}; there are ${SCOPES.join(", ")}.`);
  });
}
