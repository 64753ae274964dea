import { InvalidArgumentError } from "commander";
import {
  changeOfAccount,
  creationOfAccount,
  listOfAccounts,
  readingOfAccount,
} from "../admin/api/routes/accounts.ts";
import { topOfAccounts } from "../admin/api/routes/usage.ts";
import { TIER_LIMITS } from "../domain/limits.ts";
import { ACCOUNT, limitOptions, listed, operationCommand, paging } from "./operation-command.ts";
import { group } from "./options.ts";

export const accountsCommand = group("accounts", "accounts: create, show and change them", [
  operationCommand(creationOfAccount, {
    name: "create",
    about: "make an account before its first key",
    arguments: { "[account]": "its id; generated when left out" },
    options: {
      "--label <text>": "a name for it",
      "--metadata <json>": "a JSON object that is kept with it",
      ...limitOptions(TIER_LIMITS, { after: ", of all its keys together" }),
    },
  }),
  operationCommand(listOfAccounts, {
    name: "list",
    about: "accounts with their credits, by id; with --label by label, with --sort in that order",
    options: {
      "--prefix <text>": "those whose id begins so",
      "--label <text>": "those whose label begins so",
      "--status <name>": "in this state only",
      "--metadata <name=value>": {
        about: "those with this value in their metadata; repeatable",
        parse: member,
      },
      "--sort <order>": "by balance, or -balance or -spent_today: the largest first",
      "--balance-below <n>": "those with a lower balance",
      ...paging(100),
    },
    show: listed(
      "accounts",
      {
        ...{ ACCOUNT: "account_id", LABEL: "label", STATUS: "status", BALANCE: "balance", HELD: "held" },
        ...{ USED: "total_used", TODAY: "spent_today", "7 DAYS": "spent_7d" },
      },
      ["LABEL"],
    ),
  }),
  operationCommand(topOfAccounts, {
    name: "top",
    about: "the accounts that spent most, or were refused most; today without --from",
    options: {
      "--by <name>": "what is counted: spend when left out",
      "--from <day>": "the first UTC day, such as 2026-10-01",
      "--to <day>": "the last UTC day, itself included",
      "--limit <n>": { about: "at most so many", default: 20 },
    },
    show(top, call, answer) {
      const { complete } = top;
      const columns = { ACCOUNT: "account_id", LABEL: "label", CREDITS: "credits", REFUSALS: "refusals" };
      const output = listed("accounts", columns, ["LABEL"])(top, call, answer);
      const text = complete ? output.text : `${output.text}\nAnother account may belong to this list.`;
      return { ...output, json: { ...output.json, complete }, text };
    },
  }),
  operationCommand(readingOfAccount, {
    name: "show",
    about: "one account: label, status, limits and balance",
    arguments: ACCOUNT,
  }),
  operationCommand(changeOfAccount, {
    name: "set",
    about: "change an account, from its next request on",
    arguments: ACCOUNT,
    options: {
      "--label <text>": "a name for it; empty takes it away",
      "--metadata <json>": "a JSON object that is kept with it; empty takes it away",
      "--status <name>": "suspended: no generations and uploads; closed: nothing; active: everything",
      "--alerts <json>":
        'credits below which its endpoints are told, such as {"credits_below":[100,10]}; empty takes them away',
      ...limitOptions(TIER_LIMITS, { word: "none", after: ", of all its keys together" }),
      "--price-multiplier <n|none>": "its requests cost the list price times this, such as 0.8, rounded up",
    },
  }),
]);

function member(text: string, before: unknown): Record<string, string> {
  const at = text.indexOf("=");
  if (at > 0)
    return { ...(before as Record<string, string> | undefined), [text.slice(0, at)]: text.slice(at + 1) };
  throw new InvalidArgumentError("It must be a name and a value such as plan=pro.");
}
