import { Command, Option } from "commander";
import { byLimit, TIER_LIMITS } from "../domain/limits.ts";
import type { Metadata } from "../domain/operator-texts.ts";
import { listAccounts } from "../operations/accounts/account-lists.ts";
import {
  ACCOUNT_STATUSES,
  type AccountChanges,
  type AccountObject,
  createAccount,
  patchAccount,
  readAccountObject,
} from "../operations/accounts/operator-accounts.ts";
import { OperatorError } from "../records/operator-error.ts";
import type { AccountStatus } from "../records/records.ts";
import { limitIn, limitOptions } from "./limit-options.ts";
import { type ActorFlags, actorOf, changing, command, whole } from "./options.ts";
import { note, noteUnread, print } from "./output.ts";
import { withRedis, withRedisToWrite } from "./redis.ts";
import { iso, listing, table } from "./terminal.ts";

const LIMIT_MAX = 100;

interface TextFlags extends ActorFlags {
  label?: string;
  metadata?: string;
  json?: boolean;
}

interface SetFlags extends TextFlags {
  status?: AccountStatus;
}

interface ListFlags {
  prefix?: string;
  label?: string;
  status?: AccountStatus;
  limit: number;
  after?: string;
  json?: boolean;
}

/** `tollgate accounts ...` */
export function accountsCommand(): Command {
  return new Command("accounts")
    .description("accounts: create, show and change them")
    .addCommand(createCommand())
    .addCommand(listCommand())
    .addCommand(showCommand())
    .addCommand(setCommand());
}

function createCommand(): Command {
  return changing("create", "make an account before its first key")
    .argument("[account]", "its id; generated when left out")
    .option("--label <text>", "a name for it")
    .option("--metadata <json>", "a JSON object that is kept with it")
    .action(async (accountId: string | undefined, flags: TextFlags) => {
      const wanted = { accountId, label: flags.label, metadata: metadataOf(flags) ?? undefined };
      const { result, confirmed } = await withRedisToWrite((nodes) =>
        createAccount(nodes, wanted, actorOf(flags)),
      );
      print({ json: shown(result), text: listing(shown(result)), confirmed }, flags);
    });
}

function listCommand(): Command {
  return command("list", "accounts with their credits, by id; with --label by label")
    .option("--prefix <text>", "those whose id begins so")
    .option("--label <text>", "those whose label begins so")
    .addOption(new Option("--status <name>", "in this state only").choices(ACCOUNT_STATUSES))
    .option("--limit <n>", "at most so many", whole(1, LIMIT_MAX), LIMIT_MAX)
    .option("--after <cursor>", "where an earlier list ended")
    .action(async ({ json: isJson = false, after: cursor, ...query }: ListFlags) => {
      const { accounts, next, unread } = await withRedis((nodes) =>
        listAccounts(nodes, { ...query, cursor }),
      );
      const rows = accounts.map((account) => [
        ...[account.accountId, account.label ?? "", account.status],
        ...[account.balance, account.held, account.totalUsed],
      ]);
      const json = { accounts: accounts.map(shown), next };
      const headings = ["ACCOUNT", "LABEL", "STATUS", "BALANCE", "HELD", "USED"];
      const flags = { json: isJson };
      print({ json, text: table(headings, rows, { gives: ["LABEL"] }) }, flags);
      if (next !== undefined && !flags.json) note(`There are more: --after ${next}`);
      if (unread) noteUnread(unread);
    });
}

const ACCOUNT_ARGUMENT = ["<account>", "account id"] as const;

function showCommand(): Command {
  return command("show", "one account: label, status, limits and balance")
    .argument(...ACCOUNT_ARGUMENT)
    .action(async (accountId: string, flags: { json?: boolean }) => {
      const json = shown(await withRedis((nodes) => readAccountObject(nodes, accountId)));
      print({ json, text: listing(json) }, flags);
    });
}

function setCommand(): Command {
  const set = changing("set", "change an account, from its next request on")
    .argument(...ACCOUNT_ARGUMENT)
    .option("--label <text>", "a name for it; empty takes it away")
    .option("--metadata <json>", "a JSON object that is kept with it; empty takes it away")
    .addOption(
      new Option(
        "--status <name>",
        "suspended: no generations and uploads; closed: nothing; active: everything",
      ).choices(ACCOUNT_STATUSES),
    );
  return limitOptions(set, TIER_LIMITS, { word: "none", after: ", of all its keys together" }).action(
    async (accountId: string, flags: SetFlags) => {
      const changes = changesOf(flags);
      const { limits, ...others } = changes;
      const given = [...Object.values(others), ...Object.values(limits ?? {})];
      if (given.every((change) => change === undefined)) {
        throw new OperatorError("nothing to change; give an option such as --label or --status");
      }
      const { result, confirmed } = await withRedisToWrite((nodes) =>
        patchAccount(nodes, accountId, changes, actorOf(flags)),
      );
      print({ json: shown(result), text: listing(shown(result)), confirmed }, flags);
    },
  );
}

const changesOf = (flags: SetFlags): AccountChanges => ({
  label: flags.label === "" ? null : flags.label,
  metadata: metadataOf(flags),
  status: flags.status,
  limits: byLimit(TIER_LIMITS, ({ name }) => limitIn(flags, name)),
});

/** Null for the empty text. @throws OperatorError for what is no JSON object */
function metadataOf({ metadata }: TextFlags): Metadata | null | undefined {
  if (metadata === undefined || metadata === "") return metadata === "" ? null : undefined;
  try {
    return JSON.parse(metadata) as Metadata;
  } catch {
    throw new OperatorError('--metadata must be a JSON object such as \'{"plan":"gold"}\'');
  }
}

const shown = (account: AccountObject): Record<string, unknown> => ({
  account_id: account.accountId,
  label: account.label ?? undefined,
  metadata: account.metadata ?? undefined,
  status: account.status,
  ...byLimit(TIER_LIMITS, ({ name }) => account.limits[name] ?? undefined),
  balance: account.balance,
  held: account.held,
  total_used: account.totalUsed,
  total_requests: account.totalRequests,
  created_at: iso(account.createdAtMs),
});
