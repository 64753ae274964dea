import { Command } from "commander";
import type { Static } from "typebox";
import {
  changeOfAccount,
  creationOfAccount,
  listOfAccounts,
  readingOfAccount,
} from "../admin/api/routes/accounts.ts";
import type { Account } from "../admin/api/schemas.ts";
import { TIER_LIMITS } from "../domain/limits.ts";
import { limitOptions, operationCommand, pageOutput } from "./operation-command.ts";

const LIMIT_MAX = 100;
const ACCOUNT = { "<account>": "account id" };

export const accountsCommand = (): Command =>
  new Command("accounts")
    .description("accounts: create, show and change them")
    .addCommand(createCommand())
    .addCommand(listCommand())
    .addCommand(showCommand())
    .addCommand(setCommand());

const createCommand = (): Command =>
  operationCommand(creationOfAccount, {
    name: "create",
    about: "make an account before its first key",
    arguments: { "[account]": "its id; generated when left out" },
    options: { "--label <text>": "a name for it", "--metadata <json>": "a JSON object that is kept with it" },
  });

const listCommand = (): Command =>
  operationCommand(listOfAccounts, {
    name: "list",
    about: "accounts with their credits, by id; with --label by label",
    options: {
      "--prefix <text>": "those whose id begins so",
      "--label <text>": "those whose label begins so",
      "--status <name>": "in this state only",
      "--limit <n>": { about: "at most so many", default: LIMIT_MAX },
      "--after <cursor>": "where an earlier list ended",
    },
    show: (_, __, answer) => pageOutput("accounts", answer(), COLUMNS, ["LABEL"]),
  });

const COLUMNS = {
  ACCOUNT: (row: Static<typeof Account>) => row.account_id,
  LABEL: (row: Static<typeof Account>) => row.label ?? "",
  STATUS: (row: Static<typeof Account>) => row.status,
  BALANCE: (row: Static<typeof Account>) => row.balance,
  HELD: (row: Static<typeof Account>) => row.held,
  USED: (row: Static<typeof Account>) => row.total_used,
};

const showCommand = (): Command =>
  operationCommand(readingOfAccount, {
    name: "show",
    about: "one account: label, status, limits and balance",
    arguments: ACCOUNT,
  });

const setCommand = (): Command =>
  operationCommand(changeOfAccount, {
    name: "set",
    about: "change an account, from its next request on",
    arguments: ACCOUNT,
    options: {
      "--label <text>": "a name for it; empty takes it away",
      "--metadata <json>": "a JSON object that is kept with it; empty takes it away",
      "--status <name>": "suspended: no generations and uploads; closed: nothing; active: everything",
      "--alerts <json>": 'credits below which its endpoints are told, such as {"credits_below":[100,10]}',
      ...limitOptions(TIER_LIMITS, { word: "none", after: ", of all its keys together" }),
      "--price-multiplier <n|none>": "its requests cost the list price times this, such as 0.8, rounded up",
    },
  });
