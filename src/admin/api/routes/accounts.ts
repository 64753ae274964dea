import { type Static, Type } from "typebox";
import { listAccounts } from "../../../operations/accounts/account-lists.ts";
import {
  ACCOUNT_STATUSES,
  type AccountObject,
  createAccount,
  patchAccount,
  readAccountObject,
} from "../../../operations/accounts/operator-accounts.ts";
import { Account, AccountChanges, NewAccount } from "../account-schemas.ts";
import { requireOwnAccount } from "../authorize.ts";
import { LIMIT_DEFAULT, mayLack, pageOf, paging } from "../list-schemas.ts";
import { Problem } from "../problems.ts";
import { type Answer, route } from "../route.ts";
import type { Services } from "../services.ts";
import { accountShown } from "../shown.ts";

const shown = (account: AccountObject, status: Answer["status"], confirmed?: boolean): Answer => ({
  status,
  body: accountShown(account),
  revision: account.revision,
  confirmed,
});

const Query = Type.Object(
  {
    ...paging,
    prefix: Type.Optional(
      Type.String({ minLength: 1, maxLength: 64, description: "The id begins with it." }),
    ),
    label: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 100,
        description: "The label begins with it, in any case of letters.",
      }),
    ),
    status: Type.Optional(Type.Enum([...ACCOUNT_STATUSES], { description: "Those with this status." })),
  },
  { additionalProperties: false },
);

const Page = Type.Object({ ...pageOf(Account).properties, ...mayLack }, { additionalProperties: false });

const listRoute = ({ session }: Services) =>
  route({
    method: "GET",
    path: "/accounts",
    tag: "Accounts",
    scope: "accounts:read",
    name: "listAccounts",
    summary: "List accounts",
    description:
      "In the order of their ids, with `label` in the order of labels. A token for some accounts sees these. Pages may have fewer rows than `limit`, even none, and still a next one.",
    query: Query,
    answers: { 200: { description: "Accounts.", schema: Page } },
    async run({ query, grantee: { accounts: own } }) {
      const { prefix, label, status, cursor, limit = LIMIT_DEFAULT } = query;
      const { accounts, next, unread } = await session.run((nodes) =>
        listAccounts(nodes, { prefix, label, status, cursor, limit }, own),
      );
      return { status: 200, body: { data: accounts.map(accountShown), next_cursor: next ?? null, unread } };
    },
  });

/** Accounts: before their first key, and for their whole life. */
export const accountRoutes = (services: Services) => [
  listRoute(services),
  ...oneAccountRoutes(services),
  changeRoute(services),
];

/** A call that only suspends or closes an account. */
const isRestriction = (body: unknown): boolean => {
  const { status, ...others } = body as Static<typeof AccountChanges>;
  return Object.keys(others).length === 0 && (status === "suspended" || status === "closed");
};

const oneAccountRoutes = ({ session }: Services) => [
  route({
    method: "POST",
    path: "/accounts",
    tag: "Accounts",
    scope: "accounts:write",
    name: "createAccount",
    summary: "Create an account",
    description: "Before its first key. Without `account_id` it gets a random one.",
    body: NewAccount,
    answers: { 201: { description: "The account.", schema: Account } },
    refusals: [409],
    async run({ body, grantee, actor }) {
      const { account_id: accountId, label, metadata } = body;
      if (accountId !== undefined) requireOwnAccount(grantee, accountId);
      else if (grantee.accounts) throw new Problem("forbidden", "this token may use some accounts only");
      const { result, confirmed } = await session.write((nodes) =>
        createAccount(nodes, { accountId, label, metadata }, actor),
      );
      return shown(result, 201, confirmed);
    },
  }),
  route({
    method: "GET",
    path: "/accounts/{account}",
    tag: "Accounts",
    scope: "accounts:read",
    name: "readAccount",
    summary: "Read an account",
    description: "`ETag` names its state for `If-Match`.",
    answers: { 200: { description: "The account.", schema: Account } },
    refusals: [404],
    run: async ({ params }) =>
      shown(await session.run((nodes) => readAccountObject(nodes, params.account!)), 200),
  }),
];

const changeRoute = ({ session }: Services) =>
  route({
    method: "PATCH",
    path: "/accounts/{account}",
    tag: "Accounts",
    scope: "accounts:write",
    name: "changeAccount",
    summary: "Change an account",
    description:
      "From its next request on. What is left out stays, null removes. With `If-Match` only if nobody has changed it meanwhile. To lift a suspension or open a closed account, a token needs `accounts:reinstate`, too.",
    body: AccountChanges,
    takesIfMatch: true,
    ends: isRestriction,
    answers: { 200: { description: "The account as it is now.", schema: Account } },
    refusals: [404, 412],
    async run({ params, body, ifRevisions, grantee, actor }) {
      const { label, metadata, status, limits } = body;
      const changes = { label, metadata, status, limits };
      const mayReinstate = grantee.scopes.includes("accounts:reinstate");
      const { result, confirmed } = await session.write((nodes) =>
        patchAccount(nodes, params.account!, changes, actor, { ifRevisions, mayReinstate }),
      );
      return shown(result, 200, confirmed);
    },
  });
