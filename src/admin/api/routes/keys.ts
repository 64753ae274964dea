import type { Static } from "typebox";
import { durationMs } from "../../../config/setting-types.ts";
import { byLimit, CAPS, LIMITS, type LimitChanges } from "../../../domain/limits.ts";
import { checkedRestrictions } from "../../../operations/access/operator-values.ts";
import { listKeys } from "../../../operations/accounts/account-lists.ts";
import { pageRefusalsOfKey } from "../../../operations/accounts/refusal-log.ts";
import { changeKey, revokeKey, rotateKey } from "../../../operations/keys/change-key.ts";
import { importKey, issueKeyOnce, requireNewKeysTier } from "../../../operations/keys/issue-key.ts";
import { findKey, type KeyRecord, readKey } from "../../../operations/keys/keys.ts";
import { OperatorError } from "../../../records/operator-error.ts";
import type { RedisNodes } from "../../../redis/store-facts.ts";
import { ImportedKey, Key, KeyChanges, KeyRefusal, KeySecret, NewKey, Rotation } from "../account-schemas.ts";
import * as t from "../field-schemas.ts";
import { periodOf } from "../request.ts";
import { type Answer, type ApiCall, operation, page } from "../route.ts";
import type { OperationSettings } from "../services.ts";
import { keyShown } from "../shown.ts";

const OVERLAP_DEFAULT = "24h";

/** @throws OperatorError `not_found`, also for a key of another account */
export async function keyOf(nodes: RedisNodes, { params }: Pick<ApiCall, "params">): Promise<KeyRecord> {
  const key = await readKey(nodes, params.key!, params.account!);
  if (key && key.accountId === params.account) return key;
  throw new OperatorError(`account ${params.account} has no key ${params.key}`, "not_found");
}

interface Shown {
  key: KeyRecord;
  secret?: string | undefined;
}

const answer = (
  { key, secret }: Shown,
  _: unknown,
  { config }: Pick<OperationSettings, "config">,
): Answer => ({
  status: secret === undefined ? 200 : 201,
  body: keyShown(key, config().tiers, secret),
  revision: key.revision,
});

const timeOf = (text: string | null | undefined): number | null | undefined =>
  typeof text === "string" ? Date.parse(text) : text;

const limitsIn = ({ limits, ...body }: Static<typeof KeyChanges>): LimitChanges => ({
  ...limits,
  ...byLimit(CAPS, ({ name }) => body[name]),
});

const optionsOf = (accountId: string, body: Static<typeof NewKey>) => ({
  accountId,
  limits: byLimit(LIMITS, ({ name }) => limitsIn(body)[name] ?? undefined),
  expiresAtMs: timeOf(body.expires_at) ?? undefined,
  restrictions: checkedRestrictions({
    allowedEndpoints: body.allowed_endpoints,
    allowedAddresses: body.allowed_addresses,
  }),
  ...(body.tier !== undefined && { tier: body.tier }),
  ...(body.label !== undefined && { label: body.label }),
});

const creationOfKey = operation("POST /accounts/{account}/keys", {
  scope: "keys:write",
  name: "createKey",
  summary: "Create a key",
  description:
    "The key is in the answer once. The same `Idempotency-Key` makes no second one: a repeat answers 200 and the same `key_id` " +
    "without the key, and with another body 409. If the answer was lost, rotate the key. `expires_at` of a new key must be in the future.",
  body: NewKey,
  needsIdempotencyKey: true,
  answers: {
    200: { description: "The key that an earlier call has made, without the key itself.", schema: Key },
    201: { description: "The key, with the key itself.", schema: Key },
  },
  refusals: [409],
  async operate(nodes, { params, body, idempotencyKey, actor }, { config, bounds }) {
    const options = {
      ...optionsOf(params.account!, body),
      idempotencyKey: idempotencyKey!,
      keysMax: bounds().keysPerAccount,
    };
    const requireNew = () => requireNewKeysTier(() => config().tiers, body.tier);
    const { key: secret, keyId } = await issueKeyOnce(nodes, options, actor, requireNew);
    return { secret, key: await keyOf(nodes, { params: { ...params, key: keyId } }) };
  },
  answer,
});

const importOfKey = operation("POST /accounts/{account}/keys/import", {
  scope: "keys:write",
  name: "importKey",
  summary: "Take over a key that exists already",
  description:
    "For keys that customers have already. A repeat answers 200 and changes nothing; a key of another account is 409. `expires_at` must be in the future.",
  body: ImportedKey,
  answers: {
    200: { description: "The key, which was there before, as it is.", schema: Key },
    201: { description: "The key.", schema: Key },
  },
  refusals: [409],
  async operate(nodes, { params, body, actor }, { config, bounds }) {
    const options = {
      ...optionsOf(params.account!, body),
      token: body.key,
      keysMax: bounds().keysPerAccount,
    };
    const requireNew = () => requireNewKeysTier(() => config().tiers, body.tier);
    const { keyId, isNew } = await importKey(nodes, options, actor, requireNew);
    return { isNew, key: await keyOf(nodes, { params: { ...params, key: keyId } }) };
  },
  answer: ({ key, isNew }, call, settings) => ({
    ...answer({ key }, call, settings),
    status: isNew ? 201 : 200,
  }),
});

const listOfKeys = operation("GET /accounts/{account}/keys", {
  scope: "keys:read",
  name: "listKeys",
  summary: "List the keys of an account",
  description: "In the order of their creation, with those that are revoked or expired.",
  query: t.object(t.paging),
  answers: { 200: { description: "Keys, without the keys themselves.", schema: t.pageOf(Key) } },
  operate: (nodes, { params, query: { cursor, limit = t.LIMIT_DEFAULT } }) =>
    listKeys(nodes, params.account!, { cursor, limit }),
  answer: ({ keys, next }, _, { config }) =>
    page(
      keys.map((key) => keyShown(key, config().tiers)),
      next,
    ),
});

export const readingOfKey = operation("GET /accounts/{account}/keys/{key}", {
  scope: "keys:read",
  name: "readKey",
  summary: "Read a key",
  description: "`ETag` names its state for `If-Match`.",
  answers: { 200: { description: "The key.", schema: Key } },
  operate: (nodes, call) => keyOf(nodes, call),
  answer: (key, call, settings) => answer({ key }, call, settings),
});

const lookUpOfKey = operation("POST /keys/lookup", {
  scope: "keys:read",
  name: "lookUpKey",
  onlyReads: true,
  summary: "Find whose key this is",
  description:
    "For a key that has leaked: by the key itself, which is in the body and in no address or log. Also one that is revoked or has expired. One of an account that the token may not use is 404.",
  body: KeySecret,
  answers: { 200: { description: "The key, without the key itself.", schema: Key } },
  refusals: [404],
  async operate(nodes, { body, grantee: { accounts } }) {
    const key = body.key.startsWith("sk_") ? await findKey(nodes, body.key) : undefined;
    if (key && (accounts === undefined || accounts.includes(key.accountId))) return key;
    throw new OperatorError("this key is not known", "not_found");
  },
  answer: (key, call, settings) => answer({ key }, call, settings),
});

export const changeOfKey = operation("PATCH /accounts/{account}/keys/{key}", {
  scope: "keys:write",
  name: "changeKey",
  summary: "Change a key",
  description:
    "From its next request on. What is left out stays, null removes: of a limit it means that of the tier. Another `expires_at` must be " +
    "in the future; to end a key at once, revoke it. A tier that takes no new keys or has left the configuration is refused. The expiry " +
    "and the tier that the key has are always taken. A revoked key cannot be changed.",
  body: KeyChanges,
  takesIfMatch: true,
  answers: { 200: { description: "The key as it is now.", schema: Key } },
  refusals: [409, 412],
  async operate(nodes, call, { config }) {
    const { body, ifRevisions, actor } = call;
    const key = await keyOf(nodes, call);
    // The tier that the key has is not checked, so it is not written either: another call may have moved the key meanwhile.
    const tier = body.tier === key.tier ? undefined : body.tier;
    requireNewKeysTier(() => config().tiers, tier);
    const changes = {
      ...{ tier, label: body.label },
      limits: limitsIn(body),
      expiresAtMs: timeOf(body.expires_at),
      allowedEndpoints: body.allowed_endpoints,
      allowedAddresses: body.allowed_addresses,
    };
    await changeKey(nodes, key, changes, actor, ifRevisions);
    return keyOf(nodes, call);
  },
  answer: (key, call, settings) => answer({ key }, call, settings),
});

export const rotationOfKey = operation("POST /accounts/{account}/keys/{key}/rotate", {
  scope: "keys:write",
  name: "rotateKey",
  summary: "Replace a key",
  description:
    "Makes a new key with the same tier, limits, cap, label, expiry, endpoints and addresses. The old one goes on working for `overlap` (24h unless you " +
    "say). A key is rotated once; the answer to a repeat is 409 and names the new key.",
  body: Rotation,
  answers: { 201: { description: "The new key, with the key itself.", schema: Key } },
  refusals: [409],
  async operate(nodes, call, { bounds }) {
    const { overlap = OVERLAP_DEFAULT } = call.body;
    const old = await keyOf(nodes, call);
    const { keysPerAccount } = bounds();
    const issued = await rotateKey(nodes, old, durationMs(overlap) ?? 0, call.actor, keysPerAccount);
    const key = await keyOf(nodes, { params: { ...call.params, key: issued.keyId } });
    return { key, secret: issued.key, oldEndsAtMs: issued.oldEndsAtMs };
  },
  answer,
});

export const revocationOfKey = operation("POST /accounts/{account}/keys/{key}/revoke", {
  scope: "keys:write",
  name: "revokeKey",
  ends: () => true,
  summary: "Revoke a key",
  description:
    "At once and for good. Its tasks go on; other keys of the account can poll them. A repeat changes nothing.",
  answers: { 200: { description: "The key as it is now.", schema: Key } },
  async operate(nodes, call) {
    const outcome = await revokeKey(nodes, await keyOf(nodes, call), call.actor);
    return { outcome, key: await keyOf(nodes, call) };
  },
  answer,
});

export const refusalsOfKeyRoute = operation("GET /accounts/{account}/keys/{key}/refusals", {
  tag: "Usage",
  scope: "usage:read",
  name: "listRefusalsOfKey",
  summary: "List the latest refusals of a key",
  description:
    "Each one with its second, the last 1,000 of the last day, latest first; some seconds behind. Of the keys of a partition those 30 that were refused last have such a list.",
  query: t.object({
    ...t.paging,
    ...t.period,
    outcome: t.filter(64, "Of this kind only, such as `rate_limited`."),
    request_id: t.filter(200, "Of this request only, by either id."),
  }),
  answers: { 200: { description: "Refusals.", schema: t.pageOf(KeyRefusal) } },
  async operate(nodes, call) {
    const { outcome, request_id: requestId, cursor, limit = t.LIMIT_DEFAULT } = call.query;
    const filter = { outcome, requestId, cursor, limit, ...periodOf(call.query) };
    return pageRefusalsOfKey(nodes, await keyOf(nodes, call), filter);
  },
  answer: ({ refusals, next }) =>
    page(
      refusals.map(({ retryAfterSeconds: retryAfter, shownId, ...refusal }) => ({
        ...{ ...refusal, retryAfter },
        clientRequestId: shownId === refusal.requestId ? undefined : shownId,
      })),
      next,
    ),
});

export const keyRoutes = [
  creationOfKey,
  importOfKey,
  listOfKeys,
  readingOfKey,
  lookUpOfKey,
  changeOfKey,
  rotationOfKey,
  revocationOfKey,
  refusalsOfKeyRoute,
];
