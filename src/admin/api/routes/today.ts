import type { Static } from "typebox";
import { listKeys } from "../../../operations/accounts/account-lists.ts";
import { requireAccount } from "../../../operations/accounts/accounts.ts";
import { pageRefusals, startOfDayMs, topRefusals } from "../../../operations/accounts/refusals.ts";
import { type KeyUse, topKeysByUse, usesOfKeys } from "../../../operations/keys/operator-keys.ts";
import { withLabels } from "../../../operations/labels.ts";
import { useOfAccount } from "../../../operations/limit-use.ts";
import { OPEN_LOOKED_AT_MAX, oldOpenRequests } from "../../../operations/store/operator-views.ts";
import { storeNowMs } from "../../../redis/server-info.ts";
import type { RedisNodes } from "../../../redis/store-facts.ts";
import { requireAllAccounts } from "../authorize.ts";
import * as t from "../field-schemas.ts";
import { Problem } from "../problems.ts";
import { periodOf } from "../request.ts";
import { operation, page, route } from "../route.ts";
import { type Services, shared } from "../services.ts";
import { isoTime } from "../shown.ts";
import { AccountRefusals, AccountUse, OpenRequests, RefusalsOfDay, TopKeys } from "../view-schemas.ts";
import { keyOf } from "./keys.ts";

const TOP_KEYS = 20;
const TOP_REFUSALS = 50;
const USES_SHOWN_MAX = 100;
const OPEN_SHOWN_MAX = 100;
/** Several operators who look at the same view cost one read. */
const SHARED_MS = 3000;

const readTopKeys = shared(SHARED_MS, ({ session, config }: Services, most: number) =>
  session.run(async (nodes) => {
    const top = await topKeysByUse(nodes, config().tiers, most);
    return { ...top, keys: await withLabels(nodes, top.keys, ({ accountId }) => accountId) };
  }),
);

const topKeys = route("GET /top-keys", {
  tag: "Usage",
  scope: "keys:read",
  name: "listTopKeys",
  summary: "List the keys most used today",
  description: "The first 20. At most 20,000 keys are looked at; `complete` says whether that was all.",
  answers: { 200: { description: "Keys, most used first.", schema: TopKeys } },
  async run({ grantee }, services) {
    requireAllAccounts(grantee);
    const { keys, keysLookedAt, complete, unread } = await readTopKeys(services, TOP_KEYS);
    const data = keys.map((key) => ({ ...key, usable: key.now !== undefined, ...useShown(key) }));
    return page(data, undefined, { keysLookedAt, complete, unread });
  },
});

const useShown = ({ use, now }: KeyUse) => ({ ...use, ...now });

const refusalsOfDay = operation("GET /refusals", {
  scope: "usage:read",
  name: "listRefusalsOfDay",
  summary: "List what was refused most today",
  description:
    "By key and outcome, the 50 most frequent of the UTC day. Requests without a known key do not count.",
  answers: { 200: { description: "Refusals, most frequent first.", schema: RefusalsOfDay } },
  async operate(nodes, { grantee }) {
    requireAllAccounts(grantee);
    // A gateway counts them by the day of any server's clock.
    const nowMs = await storeNowMs(nodes.of(0));
    const counts = await topRefusals(nodes, nowMs, TOP_REFUSALS);
    return { nowMs, counts: await withLabels(nodes, counts, ({ accountId }) => accountId) };
  },
  answer: ({ nowMs, counts }) => page(counts, undefined, { sinceMs: startOfDayMs(nowMs) }),
});

const readOpenRequests = shared(SHARED_MS, ({ session }: Services, olderThanMs: number) =>
  session.run(async (nodes) => {
    const old = await oldOpenRequests(nodes, olderThanMs, OPEN_SHOWN_MAX);
    return { ...old, requests: await withLabels(nodes, old.requests, ({ accountId }) => accountId) };
  }),
);

const openRequests = route("GET /open-requests", {
  scope: "tasks:read",
  name: "listOpenRequests",
  summary: "List holds and tasks that have been open for long",
  description: "The oldest 100. At most 20,000 are looked at; `complete` says whether that was all.",
  query: t.object({
    older_than_seconds: t.wholeOr(0, 0, 31_536_000, "Open for at least so long."),
  }),
  answers: { 200: { description: "Open requests, oldest first.", schema: OpenRequests } },
  async run({ query, grantee }, services) {
    requireAllAccounts(grantee);
    const olderThanMs = (query.older_than_seconds ?? 0) * 1000;
    const { requests, ...more } = await readOpenRequests(services, olderThanMs);
    const data = requests.map((view) => ({
      ...view,
      ageSeconds: Math.max(0, Math.round((view.seenAtMs - view.admittedAtMs) / 1000)),
      dueInSeconds: Math.round((view.dueAtMs - view.seenAtMs) / 1000),
    }));
    return page(data, undefined, { lookedAtMax: OPEN_LOOKED_AT_MAX, ...more });
  },
});

const refusalsOfAccount = operation("GET /accounts/{account}/refusals", {
  scope: "usage:read",
  name: "listRefusalsOfAccount",
  summary: "List when and why an account was refused",
  description:
    "By hour, key and outcome, latest first, the last eight days. With `from` and `to` the hours that some of that time is in.",
  query: t.object({
    ...t.paging,
    ...t.period,
    key_id: t.optional(t.upTo(200, "Of this key only.")),
  }),
  answers: { 200: { description: "Refusals by hour.", schema: AccountRefusals } },
  async operate(nodes, { params, query }) {
    const { key_id: keyId, cursor, limit = t.LIMIT_DEFAULT } = query;
    const filter = { keyId, ...periodOf(query) };
    const accountId = params.account!;
    const { redis } = await requireAccount(nodes, accountId);
    const nowMs = await storeNowMs(redis);
    const found = await pageRefusals(nodes, accountId, nowMs, filter, { cursor, limit });
    return { ...found, hours: await withLabels(nodes, found.hours, () => accountId) };
  },
  answer: ({ hours, next, uncounted }, { grantee }) =>
    page(
      hours.map((one) => ({ ...one, hour: isoTime(one.atMs) })),
      next,
      {
        more: next !== undefined,
        // It counts those of other accounts, too.
        uncounted: grantee.accounts ? null : uncounted,
      },
    ),
});

const UseQuery = t.object({
  key_id: t.optional(t.upTo(200, "Of this key only; without `cursor` and `limit`.")),
  cursor: t.paging.cursor,
  limit: t.wholeOr(USES_SHOWN_MAX, 1, USES_SHOWN_MAX, "Keys, at most."),
});

const useOfLimits = operation("GET /accounts/{account}/use", {
  tag: "Usage",
  scope: "accounts:read",
  name: "readAccountUse",
  summary: "Read what is used of an account's limits now",
  description:
    "Of the account's own limits, and of those of its keys in the pages of the list of keys: the same `cursor` and `limit` are of the same keys. Where the account leaves a key less, the key's window and slots are the account's, as in the headers of its answers.",
  query: UseQuery,
  answers: { 200: { description: "What is used, and of what.", schema: AccountUse } },
  async operate(nodes, { params, query }, { config }) {
    requireOneChoice(query);
    const accountId = params.account!;
    const { partition } = await requireAccount(nodes, accountId);
    const { keyIds, next } = await keyIdsOf(nodes, accountId, query);
    const keys = await usesOfKeys(nodes, partition, keyIds, config().tiers);
    return { account: await useOfAccount(nodes, partition, accountId), keys, next };
  },
  answer: ({ account, keys, next }) => ({
    status: 200,
    body: {
      account,
      keys: keys.map((key) => ({ ...key, ...useShown(key) })),
      next_cursor: next,
    },
  }),
});

function requireOneChoice({ key_id, cursor, limit }: Static<typeof UseQuery>): void {
  if (key_id === undefined || (cursor === undefined && limit === undefined)) return;
  const message = "key_id is of one key, and has no pages: leave out cursor and limit";
  throw new Problem("invalid", message, { errors: [{ path: "?key_id", message }] });
}

async function keyIdsOf(
  nodes: RedisNodes,
  accountId: string,
  { key_id: keyId, cursor, limit = USES_SHOWN_MAX }: Static<typeof UseQuery>,
): Promise<{ keyIds: string[]; next: string | undefined }> {
  if (keyId !== undefined) {
    const key = await keyOf(nodes, { params: { account: accountId, key: keyId } });
    return { keyIds: [key.keyId], next: undefined };
  }
  const { keys, next } = await listKeys(nodes, accountId, { cursor, limit });
  return { keyIds: keys.map((key) => key.keyId), next };
}

export const todayRoutes = [topKeys, refusalsOfDay, openRequests, useOfLimits, refusalsOfAccount];
