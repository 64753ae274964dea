import { type Static, Type } from "typebox";
import { byLimit, CAPS, LIMITS, type LimitChanges } from "../../../domain/limits.ts";
import { listKeys } from "../../../operations/accounts/account-lists.ts";
import { changeKey } from "../../../operations/keys/change-key.ts";
import { issueKeyOnce } from "../../../operations/keys/issue-key.ts";
import { type KeyRecord, readKey } from "../../../operations/keys/keys.ts";
import { revokeKey } from "../../../operations/keys/revoke-key.ts";
import { rotateKey } from "../../../operations/keys/rotate-key.ts";
import { OperatorError } from "../../../records/operator-error.ts";
import type { RedisNodes } from "../../../redis/nodes.ts";
import { Key, KeyChanges, NewKey, Rotation } from "../key-schemas.ts";
import { LIMIT_DEFAULT, pageOf, paging } from "../list-schemas.ts";
import { Problem } from "../problems.ts";
import { type Answer, type Call, route } from "../route.ts";
import type { Services } from "../services.ts";
import { keyShown } from "../shown.ts";

const UNIT_MS: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const OVERLAP_DEFAULT = "24h";

/** @throws OperatorError `not_found`, also for a key of another account */
export async function keyOf(nodes: RedisNodes, { params }: Pick<Call, "params">): Promise<KeyRecord> {
  const key = await readKey(nodes, params.key!, params.account!);
  if (key && key.accountId === params.account) return key;
  throw new OperatorError(`account ${params.account} has no key ${params.key}`, "not_found");
}

const shown = (key: KeyRecord, more: Partial<Answer> = {}, secret?: string): Answer => ({
  status: 200,
  body: keyShown(key, secret),
  revision: key.revision,
  ...more,
});

const timeOf = (text: string | null | undefined): number | null | undefined =>
  typeof text === "string" ? Date.parse(text) : text;

const limitsIn = ({ limits, ...body }: Static<typeof KeyChanges>): LimitChanges => ({
  ...limits,
  ...byLimit(CAPS, ({ name }) => body[name]),
});

/** API keys of an account. */
export const keyRoutes = (services: Services) => [
  createRoute(services),
  listRoute(services),
  ...oneKeyRoutes(services),
  rotateRoute(services),
  revokeRoute(services),
];

/** @throws Problem for a tier that is not in the configuration, or takes no new keys */
function requireTier({ tiers }: Services, tier: string | undefined): void {
  if (tier === undefined) return;
  const known = tiers();
  const isNamed = Object.hasOwn(known, tier);
  if (isNamed && !known[tier]?.deprecated) return;
  const names = Object.keys(known).filter((name) => !known[name]?.deprecated);
  const message = `tier ${isNamed ? "takes no new keys" : "is not in the configuration"}; there are ${names.join(", ")}`;
  throw new Problem("invalid", message, { errors: [{ path: "/tier", message }] });
}

const createRoute = (services: Services) =>
  route({
    method: "POST",
    path: "/accounts/{account}/keys",
    tag: "Keys",
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
    refusals: [404, 409],
    async run({ params, body, idempotencyKey, actor }) {
      const options = {
        accountId: params.account!,
        idempotencyKey: idempotencyKey!,
        limits: byLimit(LIMITS, ({ name }) => limitsIn(body)[name] ?? undefined),
        expiresAtMs: timeOf(body.expires_at) ?? undefined,
        ...(body.tier !== undefined && { tier: body.tier }),
        ...(body.label !== undefined && { label: body.label }),
        keysMax: services.bounds().keysPerAccount,
      };
      const { result, confirmed } = await services.session.write(async (nodes) => {
        const issued = await issueKeyOnce(nodes, options, actor, () => requireTier(services, body.tier));
        return { secret: issued.key, key: await keyOf(nodes, { params: { ...params, key: issued.keyId } }) };
      });
      const { key, secret } = result;
      return shown(key, { status: secret === undefined ? 200 : 201, confirmed }, secret);
    },
  });

const listRoute = ({ session }: Services) =>
  route({
    method: "GET",
    path: "/accounts/{account}/keys",
    tag: "Keys",
    scope: "keys:read",
    name: "listKeys",
    summary: "List the keys of an account",
    description: "In the order of their creation, with those that are revoked or expired.",
    query: Type.Object(paging, { additionalProperties: false }),
    answers: { 200: { description: "Keys, without the keys themselves.", schema: pageOf(Key) } },
    refusals: [404],
    async run({ params, query: { cursor, limit = LIMIT_DEFAULT } }) {
      const { keys, next } = await session.run((nodes) =>
        listKeys(nodes, params.account!, { cursor, limit }),
      );
      return { status: 200, body: { data: keys.map((key) => keyShown(key)), next_cursor: next ?? null } };
    },
  });

const oneKeyRoutes = (services: Services) => [
  route({
    method: "GET",
    path: "/accounts/{account}/keys/{key}",
    tag: "Keys",
    scope: "keys:read",
    name: "readKey",
    summary: "Read a key",
    description: "`ETag` names its state for `If-Match`.",
    answers: { 200: { description: "The key.", schema: Key } },
    refusals: [404],
    run: async (call) => shown(await services.session.run((nodes) => keyOf(nodes, call))),
  }),
  route({
    method: "PATCH",
    path: "/accounts/{account}/keys/{key}",
    tag: "Keys",
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
    refusals: [404, 409, 412],
    async run(call) {
      const { body, ifRevisions, actor } = call;
      const changes = {
        label: body.label,
        limits: limitsIn(body),
        expiresAtMs: timeOf(body.expires_at),
      };
      const { result, confirmed } = await services.session.write(async (nodes) => {
        const key = await keyOf(nodes, call);
        // The tier that the key has is not checked, so it is not written either: another call may have moved the key meanwhile.
        const tier = body.tier === key.tier ? undefined : body.tier;
        requireTier(services, tier);
        await changeKey(nodes, key, { ...changes, tier }, actor, ifRevisions);
        return keyOf(nodes, call);
      });
      return shown(result, { confirmed });
    },
  }),
];

const rotateRoute = ({ session, bounds }: Services) =>
  route({
    method: "POST",
    path: "/accounts/{account}/keys/{key}/rotate",
    tag: "Keys",
    scope: "keys:write",
    name: "rotateKey",
    summary: "Replace a key",
    description:
      "Makes a new key with the same tier, limits, cap, label and expiry. The old one goes on working for `overlap` (24h unless you " +
      "say). A key is rotated once; the answer to a repeat is 409 and names the new key.",
    body: Rotation,
    answers: { 201: { description: "The new key, with the key itself.", schema: Key } },
    refusals: [404, 409],
    async run(call) {
      const [, count = "", unit = ""] = /^(\d+)(\w)$/.exec(call.body.overlap ?? OVERLAP_DEFAULT) ?? [];
      const overlapMs = Number(count) * (UNIT_MS[unit] ?? 0);
      const { result, confirmed } = await session.write(async (nodes) => {
        const old = await keyOf(nodes, call);
        const issued = await rotateKey(nodes, old, overlapMs, call.actor, bounds().keysPerAccount);
        const key = await keyOf(nodes, { params: { ...call.params, key: issued.keyId } });
        return { key, secret: issued.key };
      });
      return shown(result.key, { status: 201, confirmed }, result.secret);
    },
  });

const revokeRoute = ({ session }: Services) =>
  route({
    method: "POST",
    path: "/accounts/{account}/keys/{key}/revoke",
    tag: "Keys",
    scope: "keys:write",
    name: "revokeKey",
    ends: () => true,
    summary: "Revoke a key",
    description:
      "At once and for good. Its tasks go on; other keys of the account can poll them. A repeat changes nothing.",
    answers: { 200: { description: "The key as it is now.", schema: Key } },
    refusals: [404],
    async run(call) {
      const { result, confirmed } = await session.write(async (nodes) => {
        await revokeKey(nodes, await keyOf(nodes, call), call.actor);
        return keyOf(nodes, call);
      });
      return shown(result, { confirmed });
    },
  });
