import { type Static, Type } from "typebox";
import { listAccounts, requireIndexed } from "../../../operations/accounts/account-lists.ts";
import { ACCOUNT_SORTS } from "../../../operations/accounts/account-ranks.ts";
import {
  ACCOUNT_STATUSES,
  type AccountObject,
  createAccount,
  patchAccount,
  readAccountObject,
} from "../../../operations/accounts/operator-accounts.ts";
import { Account, AccountChanges, ListedAccount, NewAccount } from "../account-schemas.ts";
import { requireAllAccounts, requireOwnAccount } from "../authorize.ts";
import * as t from "../field-schemas.ts";
import { type Answer, operation, page } from "../route.ts";
import { accountShown, listedAccountShown } from "../shown.ts";

const answer = (account: AccountObject, status: Answer["status"] = 200): Answer => ({
  status,
  body: accountShown(account),
  revision: account.revision,
});

const Query = t.object({
  ...t.paging,
  prefix: t.filter(64, "The id begins with it."),
  label: t.filter(100, "The label begins with it, in any case of letters."),
  status: t.optional(t.oneOf(ACCOUNT_STATUSES, "Those with this status.")),
  metadata: t.optional(
    Type.Record(Type.String(), Type.String({ maxLength: 200 }), {
      description:
        "`metadata.plan=pro` lists those whose metadata has this value as `plan`, for the names in `accounts.indexed_metadata` of the configuration. The value is a text, or a number or boolean as JSON writes it. Of several names all must match.",
    }),
  ),
  sort: t.optional(
    t.oneOf(
      ACCOUNT_SORTS,
      "By balance, by the credits spent today or in seven days, or by the days that are left, a minus for the largest first; then by id. `-spent_today` lists those that have spent any today, `-spent_7d` and `days_left` those that have in seven days.",
    ),
  ),
  balance_below: t.optional(
    t.whole(
      0,
      Number.MAX_SAFE_INTEGER,
      "Those with a balance of less; by balance unless `sort` says otherwise.",
    ),
  ),
});

export const listOfAccounts = operation("GET /accounts", {
  scope: "accounts:read",
  name: "listAccounts",
  summary: "List accounts",
  description:
    "In the order of their ids, with `label` in the order of labels, with `sort` in that order over all pages. `sort` and `balance_below` go by the balance of the ledger, which includes what is held, as it was about a second ago; the rows are as they are now. What was spent eight days ago leaves the order of `-spent_7d` and `days_left` within some minutes after midnight UTC. A token for some accounts sees these. Pages may have fewer rows than `limit`, even none, and still a next one.",
  query: Query,
  answers: { 200: { description: "Accounts.", schema: t.pageOf(ListedAccount, { unread: t.unread }) } },
  async operate(nodes, { query: given, grantee }, { config }) {
    const { limit = t.LIMIT_DEFAULT, balance_below: balanceBelow, ...query } = given;
    if (query.metadata) requireIndexed(query.metadata, config().accounts.indexedMetadata);
    return listAccounts(nodes, { ...query, balanceBelow, limit }, grantee.accounts);
  },
  answer: ({ accounts, next, unread }) => page(accounts.map(listedAccountShown), next, { unread }),
});

export const creationOfAccount = operation("POST /accounts", {
  scope: "accounts:write",
  name: "createAccount",
  summary: "Create an account",
  description: "Before its first key. Without `account_id` it gets a random one.",
  body: NewAccount,
  answers: { 201: { description: "The account.", schema: Account } },
  refusals: [409],
  async operate(nodes, { body: { account_id: accountId, ...texts }, grantee, actor }) {
    if (accountId === undefined) requireAllAccounts(grantee);
    else requireOwnAccount(grantee, accountId);
    return createAccount(nodes, { accountId, ...texts }, actor);
  },
  answer: (account) => answer(account, 201),
});

export const readingOfAccount = operation("GET /accounts/{account}", {
  scope: "accounts:read",
  name: "readAccount",
  summary: "Read an account",
  description: "`ETag` names its state for `If-Match`.",
  answers: { 200: { description: "The account.", schema: Account } },
  operate: (nodes, { params }) => readAccountObject(nodes, params.account!),
  answer: (account) => answer(account),
});

const isRestriction = (body: unknown): boolean => {
  const { status, ...others } = body as Static<typeof AccountChanges>;
  return Object.keys(others).length === 0 && (status === "suspended" || status === "closed");
};

export const changeOfAccount = operation("PATCH /accounts/{account}", {
  scope: "accounts:write",
  name: "changeAccount",
  summary: "Change an account",
  description:
    "From its next request on. What is left out stays, null removes. With `If-Match` only if nobody has changed it meanwhile. To lift a suspension or open a closed account, a token needs `accounts:reinstate`, too.",
  body: AccountChanges,
  takesIfMatch: true,
  ends: isRestriction,
  answers: { 200: { description: "The account as it is now.", schema: Account } },
  refusals: [412],
  operate(nodes, { params, body: { alerts, ...body }, ifRevisions, grantee, actor }) {
    const mayReinstate = grantee.scopes.includes("accounts:reinstate");
    const { price_multiplier: priceMultiplier, ...changes } = body;
    const creditsBelow = alerts === null ? [] : alerts?.credits_below;
    const wanted = { ...changes, priceMultiplier, creditsBelow };
    return patchAccount(nodes, params.account!, wanted, actor, { ifRevisions, mayReinstate });
  },
  answer: (account) => answer(account),
});

export const accountRoutes = [listOfAccounts, creationOfAccount, readingOfAccount, changeOfAccount];
