import { Command, InvalidArgumentError } from "commander";
import { archiveLookUps } from "../archive/archived-money.ts";
import { CREDITS_MAX } from "../domain/credit-packages.ts";
import { readAccount } from "../operations/accounts/accounts.ts";
import { refusalsOf } from "../operations/accounts/refusals.ts";
import { adjustCredits } from "../operations/credits/adjustments.ts";
import { grantCredits } from "../operations/credits/grants.ts";
import { oldestKeys } from "../operations/keys/keys-by-age.ts";
import { eachKey } from "../operations/keys/walk-keys.ts";
import { kindOf, type LedgerEntry, transactionOf } from "../records/ledger-entries.ts";
import { OperatorError } from "../records/operator-error.ts";
import { storeNowMs } from "../redis/server-clock.ts";
import { refusalsJson, refusalsText, shown, statusText } from "./keys-shown.ts";
import { ledgerRow } from "./ledger-rows.ts";
import { optionalArchiveUrl } from "./local-archive.ts";
import { requireConfig } from "./local-config.ts";
import { type ActorFlags, actorOf, changing, command, whole } from "./options.ts";
import { note, print } from "./output.ts";
import { withRedis, withRedisToWrite } from "./redis.ts";
import { listing, moment, table } from "./terminal.ts";

/** `tollgate keys list --account` shows all. */
const KEYS_SHOWN_MAX = 1000;

/** `tollgate credits ...` */
export function creditsCommand(): Command {
  return new Command("credits")
    .description("credits of accounts: grant, adjust and show them")
    .addCommand(grantCommand())
    .addCommand(adjustCommand())
    .addCommand(showCommand());
}

function grantCommand(): Command {
  return changing("grant", "credit an account; the same reference credits once")
    .argument("<account>", "account id")
    .argument("[credits]", "how many; left out with --package", whole(1, CREDITS_MAX))
    .requiredOption("--reference <text>", "what this pays for, such as an order number; counts once")
    .option("--package <name>", "a package of the config, instead of credits")
    .action(
      async (
        accountId: string,
        named: number | undefined,
        flags: ActorFlags & { reference: string; package?: string; json?: boolean },
      ) => {
        const amount = amountOf(named, flags.package);
        const { readArchived } = archiveLookUps(optionalArchiveUrl());
        const { result, confirmed } = await withRedisToWrite((nodes) =>
          grantCredits(nodes, accountId, amount, flags.reference, actorOf(flags), readArchived),
        );
        const { outcome, balance } = result;
        const text =
          outcome === "recharged"
            ? `${amount} credits granted to ${accountId}; it can spend ${balance}.`
            : `The reference ${flags.reference} has credited ${accountId} before; nothing is changed. It can spend ${balance}.`;
        const json = { outcome, account_id: accountId, amount, reference: flags.reference, balance };
        print({ json, text, confirmed }, flags);
      },
    );
}

interface AdjustFlags extends ActorFlags {
  reason: string;
  reference: string;
  json?: boolean;
}

function adjustCommand(): Command {
  return changing("adjust", "correct a balance by hand, up or down; never below what is held")
    .argument("<account>", "account id")
    .argument("<credits>", "how many, such as 50; take credits with -50", signed)
    .requiredOption("--reason <text>", "why; customers see it beside the transaction")
    .requiredOption("--reference <text>", "what stands for it, such as a ticket; counts once")
    .action(async (accountId: string, amount: number, flags: AdjustFlags) => {
      const { reason, reference } = flags;
      const { readArchived } = archiveLookUps(optionalArchiveUrl());
      const { result, confirmed } = await withRedisToWrite((nodes) =>
        adjustCredits(nodes, accountId, { amount, reason, reference }, actorOf(flags), readArchived),
      );
      const { outcome, balance, entry } = result;
      const text =
        outcome === "adjusted"
          ? `${Math.abs(amount)} credits ${amount < 0 ? "taken from" : "added to"} ${accountId}; it can spend ${balance}.`
          : `The reference ${reference} has adjusted ${accountId} before; nothing is changed. It can spend ${balance}.`;
      const json = {
        ...{ outcome, account_id: accountId, amount, reason, reference, balance },
        transaction: entry && ledgerRow(entry),
      };
      print({ json, text, confirmed }, flags);
    });
}

function signed(text: string): number {
  const value = /^[+-]?\d{1,16}$/.test(text) ? Number(text) : 0;
  if (value !== 0 && Math.abs(value) <= CREDITS_MAX) return value;
  throw new InvalidArgumentError(
    `It must be a whole number of credits from -${CREDITS_MAX} to ${CREDITS_MAX}, not 0.`,
  );
}

function amountOf(named: number | undefined, packageName: string | undefined): number {
  if (packageName === undefined) {
    if (named === undefined) throw new OperatorError("say how many credits, or give --package");
    return named;
  }
  if (named !== undefined) throw new OperatorError("give either a number of credits or --package, not both");
  const { packages } = requireConfig();
  const credits = packages[packageName];
  if (credits !== undefined) return credits;
  const known = Object.keys(packages).join(", ");
  throw new OperatorError(`the config has no package ${packageName}; it has ${known}`);
}

function showCommand(): Command {
  return command("show", "balance, holds, latest transactions, keys and refusals of an account")
    .argument("<account>", "account id")
    .action(async (accountId: string, flags: { json?: boolean }) => {
      const { account, page, refusals } = await withRedis(async (nodes) => {
        const account = await readAccount(nodes, accountId);
        const nowMs = await storeNowMs(nodes.of(account.partition));
        const page = await oldestKeys(eachKey(nodes, accountId), { limit: KEYS_SHOWN_MAX });
        return { account, page, refusals: await refusalsOf(nodes, accountId, nowMs) };
      });
      const { balance, held, totalUsed, totalRequests, entries } = account;
      const money = {
        account_id: accountId,
        balance,
        held,
        total_used: totalUsed,
        total_requests: totalRequests,
      };
      const { keys, more } = page;
      const json = {
        ...money,
        recent_transactions: entries.map(transactionJson),
        keys: keys.map(shown),
        more_keys: more || undefined,
        ...refusalsJson(refusals),
      };
      const transactions = entries.map((entry) => [
        moment(entry.atMs),
        kindOf(entry),
        entry.amount,
        entry.balanceAfter,
        purposeOf(entry),
      ]);
      const text = [
        listing(money),
        table(["TIME", "TYPE", "CREDITS", "BALANCE", "FOR"], transactions, { gives: ["FOR"] }),
        table(
          ["KEY ID", "TIER", "STATUS"],
          keys.map((key) => [key.keyId, key.tier, statusText(key)]),
        ),
        ...refusalsText(refusals),
      ].join("\n\n");
      print({ json, text }, flags);
      if (more && !flags.json) note(`There are more keys: tollgate keys list --account ${accountId}`);
    });
}

/** As customers see it, with what it is to an accountant and what stands for it. */
const transactionJson = (entry: LedgerEntry) => ({
  ...transactionOf(entry),
  kind: kindOf(entry),
  reference: entry.reference || undefined,
});

/** What an entry is for: the endpoint of a charge; else the task, why, and the reference in brackets. */
function purposeOf(entry: LedgerEntry): string | undefined {
  const { endpoint, taskId, note, reason, reference } = entry;
  if (kindOf(entry) === "charge") return endpoint || taskId || undefined;
  const words = [taskId, note || reason].filter((word) => word !== "").join(", ");
  return [words, reference && `(${reference})`].filter((word) => word !== "").join(" ") || undefined;
}
