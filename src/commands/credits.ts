import { type Command, InvalidArgumentError } from "commander";
import {
  adjustmentOfCredits,
  correctionOfCharges,
  grantOfCredits,
  reversalOfGrant,
} from "../admin/api/routes/credits.ts";
import { transactionsOfAll } from "../admin/api/routes/transactions.ts";
import { keyShown } from "../admin/api/shown.ts";
import { CREDITS_MAX } from "../domain/money.ts";
import { readAccount } from "../operations/accounts/accounts.ts";
import { refusalsOf } from "../operations/accounts/refusals.ts";
import { eachKey, oldestKeys } from "../operations/keys/keys.ts";
import { detailsOf, kindOf, type LedgerEntry, transactionOf } from "../records/ledger-entries.ts";
import { storeNowMs } from "../redis/server-info.ts";
import { refusalsJson, refusalsText, statusText } from "./keys-list.ts";
import { ledgerRow } from "./ledger.ts";
import { ACCOUNT, flat, listed, operationCommand, PERIOD, paging, timeIn } from "./operation-command.ts";
import { command, group } from "./options.ts";
import { note, print } from "./output.ts";
import { requireConfig, withRedis } from "./redis.ts";
import { listing, moment, table } from "./terminal.ts";

const WHY = {
  "--reason <text>": "why; customers see it beside the transaction",
  "--reference <text>": "what stands for it, such as a ticket; counts once",
};

/** `tollgate keys list --account` shows all. */
const KEYS_SHOWN_MAX = 1000;

export const creditsCommand = group(
  "credits",
  "credits of accounts: grant, adjust, take back and show them",
  [
    operationCommand(grantOfCredits, {
      name: "grant",
      about: "credit an account; the same reference credits once",
      arguments: { ...ACCOUNT, "[credits]": "how many; left out with --package" },
      options: {
        "--reference <text>": "what this pays for, such as an order number; counts once",
        "--package <name>": "a package of the config, instead of credits",
        "--kind <kind>": "what it is to an accountant; purchase when left out",
        "--amount-paid <amount>":
          "of a purchase: what the customer paid, such as 9.90; the package's price when left out",
        "--currency <code>": "of that amount, such as USD",
        "--metadata <json>": "an object of your own, kept with it",
      },
      show({ outcome, amount, balance }, { params: { account }, body }) {
        const { reference, kind = "purchase" } = body as { reference: string; kind?: string };
        const text =
          outcome === "recharged"
            ? `${amount} credits granted to ${account}; it can spend ${balance}.`
            : `The reference ${reference} has credited ${account} before; nothing is changed. It can spend ${balance}.`;
        return { json: { outcome, account_id: account, kind, amount, reference, balance }, text };
      },
    }),
    operationCommand(adjustmentOfCredits, {
      name: "adjust",
      about: "correct a balance by hand, up or down; never below what is held",
      arguments: {
        ...ACCOUNT,
        "<amount>": { about: "how many credits, such as 50; take credits with -50", parse: signed },
      },
      options: WHY,
      show({ outcome, balance, entry }, { params: { account }, body }) {
        const { amount, reason, reference } = body as { amount: number; reason: string; reference: string };
        const text =
          outcome === "adjusted"
            ? `${Math.abs(amount)} credits ${amount < 0 ? "taken from" : "added to"} ${account}; it can spend ${balance}.`
            : `The reference ${reference} has adjusted ${account} before; nothing is changed. It can spend ${balance}.`;
        const json = { outcome, account_id: account, amount, reason, reference, balance };
        return { json: { ...json, transaction: entry && ledgerRow(entry) }, text };
      },
    }),
    operationCommand(reversalOfGrant, {
      name: "reverse",
      about: "take back what is left of a grant; never what is held",
      arguments: { ...ACCOUNT, "<of>": "the reference of the grant", "[amount]": "at most so many credits" },
      options: WHY,
      show({ outcome, balance, entry }, { params: { account }, body }) {
        const { of, reason, reference } = body as { of: string; reason: string; reference: string };
        const reversed = entry && -entry.amount;
        const requested = entry && detailsOf(entry).requested;
        const text =
          outcome === "reversed"
            ? `${reversed} credits of the grant ${of} taken back from ${account}, of ${requested} asked for; it can spend ${balance}.`
            : `The reference ${reference} has reversed this before; nothing is changed. ${account} can spend ${balance}.`;
        const json = { outcome, account_id: account, of, requested, reversed, reason, reference, balance };
        return { json: { ...json, transaction: entry && ledgerRow(entry) }, text };
      },
    }),
    operationCommand(correctionOfCharges, {
      name: "correct",
      about: "give back what a wrong price charged too much, to all accounts, once per charge",
      options: {
        "--from <time>": "when the wrong price began, such as 2026-11-01T10:00:00Z",
        "--to <time>": "when it ended, itself not included",
        "--prices <list>": {
          about:
            "endpoint:charged:correct in list prices, with commas between, such as gen2/text-to-video:20:10",
          parse: pricesOf,
        },
        "--price-list <file>": "only charges by this price file, as transactions name it",
        "--reference <text>": "your own name of the correction; counts once per charge",
        "--reason <text>": "why; customers see it beside the transaction",
        "--dry-run": "change nothing, and list the charges",
        "--after <cursor>": "where an earlier call ended",
      },
      show({ shown, next, ...numbers }, { body }) {
        const { dry_run: isDryRun = false } = body as { dry_run?: boolean };
        const rows = shown.map(({ entry, credits }) => [
          ...[entry.accountId, entry.requestId, entry.endpoint, -entry.amount, credits],
        ]);
        const { charges, corrected, repeated, refunded, running, credits } = numbers;
        const did = isDryRun
          ? `${charges} charges were wrong: ${credits} credits would be given back. Nothing is changed.`
          : `${corrected} of ${charges} charges corrected: ${credits} credits given back.`;
        const others = `Before: ${repeated}; refunded or without anything left: ${refunded}; tasks that still run: ${running}.`;
        const text = [
          table(["ACCOUNT", "REQUEST", "ENDPOINT", "CHARGED", "GIVES BACK"], rows, { gives: ["ENDPOINT"] }),
          `${did} ${others}`,
          ...(running > 0 ? ["Repeat the command when those have ended, with the same reference."] : []),
        ].join("\n");
        return { text, more: next };
      },
    }),
    operationCommand(transactionsOfAll, {
      name: "transactions",
      about:
        "transactions of all accounts, the latest first, from the archive if there is one, else from Redis",
      options: {
        "--type <name>": "as customers see it",
        "--kind <name>": "of this kind only",
        ...PERIOD,
        ...paging(50),
      },
      show: listed(
        "transactions",
        {
          ...{ TIME: timeIn("created_at"), ACCOUNT: "account_id", KIND: "kind", CREDITS: "amount" },
          REFERENCE: ({ reference, task_id }) => reference ?? task_id ?? "",
          REASON: "reason",
        },
        ["REFERENCE", "REASON"],
      ),
    }),
    showCommand,
  ],
);

function signed(text: string): number {
  const value = /^[+-]?\d{1,16}$/.test(text) ? Number(text) : 0;
  if (value !== 0 && Math.abs(value) <= CREDITS_MAX) return value;
  throw new InvalidArgumentError(
    `It must be a whole number of credits from -${CREDITS_MAX} to ${CREDITS_MAX}, not 0.`,
  );
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
      const { tiers } = requireConfig();
      const json = {
        ...money,
        recent_transactions: entries.map(transactionJson),
        keys: keys.map((key) => flat(keyShown(key, tiers))),
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

const transactionJson = (entry: LedgerEntry) => ({
  ...transactionOf(entry),
  kind: kindOf(entry),
  reference: entry.reference || undefined,
});

function purposeOf(entry: LedgerEntry): string | undefined {
  const { endpoint, taskId, note, reason, reference } = entry;
  if (kindOf(entry) === "charge") return endpoint || taskId || undefined;
  const words = [taskId, note || reason].filter((word) => word !== "").join(", ");
  return [words, reference && `(${reference})`].filter((word) => word !== "").join(" ") || undefined;
}

interface Price {
  endpoint: string;
  charged: number;
  correct: number;
}

function pricesOf(text: string): Price[] {
  return text.split(",").map((part) => {
    const [, endpoint = "", charged, correct] = /^\s*([^:\s]+):(\d{1,13}):(\d{1,13})\s*$/.exec(part) ?? [];
    if (endpoint === "")
      throw new InvalidArgumentError("It must be endpoint:charged:correct, with commas between.");
    return { endpoint, charged: Number(charged), correct: Number(correct) };
  });
}
