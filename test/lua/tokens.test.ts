import { afterAll, beforeAll, expect, test } from "vitest";
import type { Scope } from "../../src/domain/scopes.ts";
import { pageAudit } from "../../src/operations/access/audit.ts";
import {
  createToken,
  findToken,
  listTokens,
  readToken,
  revokeToken,
  type TokenRecord,
} from "../../src/operations/access/tokens.ts";
import { tokenNames } from "../../src/records/names.ts";
import { scriptsOf } from "../../src/redis/script-runner.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import { revokeToken as revokeTokenScript, token } from "../../src/scripts/tokens.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { withMutant } from "./mutant-client.ts";
import { inShare, type Mutant, TOKEN_MUTANTS } from "./mutants.ts";

// Tokens of the management API: a secret is shown once, and opens what its record says until it ends.

let redis: TestRedis;
let nodes: RedisNodes;
beforeAll(async () => {
  redis = await givenRedis();
  nodes = oneNode(redis.client);
});
afterAll(() => redis.stop());

const ANN = { by: "cli ann", requestId: "req_1" };
const SCOPES: Scope[] = ["accounts:read", "keys:write"];
const MAKER = {
  tokenId: "tok_maker",
  root: "tok_maker",
  scopes: SCOPES,
  accounts: undefined,
  expiresAtMs: undefined,
  familyMost: 100,
};
const given = (more = {}) => createToken(nodes, { label: "shop", scopes: SCOPES, ...more }, ANN);

test("a token is found by itself, and the store has its digest only", async () => {
  const made = await given({ accounts: ["acme"], expiresAtMs: Date.now() + 60_000 });
  expect(made.token).toMatch(/^tgm_[\w-]{43}$/);
  expect(await findToken(nodes, made.token)).toEqual(made.record);
  expect(made.record).toMatchObject({ label: "shop", scopes: SCOPES, accounts: ["acme"] });
  for (const name of await redis.client.keys("tg:{p00}:*")) {
    const dump = JSON.stringify((await redis.client.dumpBuffer(name))?.toString("latin1"));
    expect(dump, name).not.toContain(made.token.slice(4));
  }
  for (const wrong of [
    "",
    "tgm_",
    `${made.token}x`,
    made.token.replace("tgm_", "sk_"),
    `tgm_${"a".repeat(43)}`,
  ])
    expect(await findToken(nodes, wrong)).toBeUndefined();
});

test("a token ends when it expires, and for good when it is revoked", async () => {
  const { token: secret, record } = await given();
  const { token: name } = tokenNames(record.tokenId);
  await redis.client.hset(name, "expires_at", Date.now() - 1);
  expect(await findToken(nodes, secret)).toBeUndefined();
  await redis.client.hset(name, "expires_at", Date.now() + 60_000);
  expect(await findToken(nodes, secret)).toBeDefined();
  const revoked = await revokeToken(nodes, record.tokenId, ANN);
  expect(revoked.revokedAtMs).toBeGreaterThan(0);
  expect(await findToken(nodes, secret)).toBeUndefined();
  expect(await revokeToken(nodes, record.tokenId, ANN)).toEqual(revoked);
  expect(await readToken(nodes, record.tokenId)).toEqual(revoked);
  await expect(revokeToken(nodes, "tok_none", ANN)).rejects.toMatchObject({ code: "not_found" });
});

// Guarantee: a damaged record opens nothing.
test("a token whose stored expiry is no time has expired", async () => {
  const { token: secret, record } = await given();
  await redis.client.hset(tokenNames(record.tokenId).token, "expires_at", "NaN");
  expect(await findToken(nodes, secret)).toBeUndefined();
});

test("a token that ends makes none whose end is no time", async () => {
  const maker = { ...MAKER, expiresAtMs: Date.now() + 60_000 };
  const wanted = { label: "for ever", scopes: SCOPES, expiresAtMs: Number.NaN };
  await expect(createToken(nodes, wanted, ANN, maker)).rejects.toMatchObject({ code: "invalid" });
});

test("each change of a token is audited once, without its digest", async () => {
  const { record } = await given({ label: "audited" });
  await revokeToken(nodes, record.tokenId, ANN);
  await revokeToken(nodes, record.tokenId, ANN);
  const { records } = await pageAudit(nodes, { limit: 100 });
  const own = records.filter(({ target }) => target === record.tokenId);
  expect(own.map(({ action, by, requestId }) => [action, by, requestId])).toEqual([
    ["token.revoke", "cli ann", "req_1"],
    ["token.create", "cli ann", "req_1"],
  ]);
  expect(own[1]?.after).toEqual({ label: "audited", scopes: expect.anything() });
  expect(own[0]).toMatchObject({ before: { revoked_at: null }, after: { revoked_at: expect.any(String) } });
});

test("a token cannot make one with more than it has", async () => {
  const make = async (maker: object, wanted: object) =>
    createToken(nodes, { label: "x", scopes: ["keys:write"], ...wanted }, ANN, {
      ...MAKER,
      ...(await given()).record,
      ...maker,
    });
  await make({}, {});
  await make({ accounts: ["a", "b"] }, { accounts: ["b"] });
  for (const [maker, wanted] of [
    [{}, { scopes: ["credits:write"] }],
    [{ accounts: ["a"] }, {}],
    [{ accounts: ["a"] }, { accounts: ["a", "b"] }],
  ] as const)
    await expect(make(maker, wanted)).rejects.toMatchObject({ code: "forbidden" });
});

test("values that make no sense are refused, and leave nothing", async () => {
  const before = await redis.client.zcard(tokenNames("").tokens);
  for (const [wrong, path] of [
    [{ label: "" }, "label"],
    [{ scopes: [] }, "scopes"],
    [{ scopes: ["all"] }, "scopes"],
    [{ accounts: [] }, "accounts"],
    [{ accounts: ["a b"] }, undefined],
    [{ expiresAtMs: Date.now() - 1 }, "expires_at"],
    [{ expiresAtMs: Number.NaN }, "expires_at"],
    [{ expiresAtMs: Number.POSITIVE_INFINITY }, "expires_at"],
  ] as const)
    await expect(given(wrong)).rejects.toMatchObject({ code: "invalid", ...(path && { path }) });
  expect(await redis.client.zcard(tokenNames("").tokens)).toBe(before);
});

test("a list shows each token once, newest first, and refuses made-up cursors", async () => {
  const made = [await given({ label: "1" }), await given({ label: "2" }), await given({ label: "3" })];
  const seen: string[] = [];
  let cursor: string | undefined;
  do {
    const page = await listTokens(nodes, { cursor, limit: 2 });
    seen.push(...page.tokens.map(({ tokenId }) => tokenId));
    cursor = page.next;
  } while (cursor !== undefined);
  expect(new Set(seen).size).toBe(seen.length);
  expect(seen).toEqual(expect.arrayContaining(made.map(({ record }) => record.tokenId)));
  for (const wrong of ["nonsense", "", "AAAA"])
    await expect(listTokens(nodes, { cursor: wrong, limit: 2 })).rejects.toMatchObject({ code: "invalid" });
});

// Guarantee: who reads all pages while tokens end sees each of the others once, and comes to an end.
test("a list goes on behind a token that was removed meanwhile", async () => {
  for (const label of ["a", "b", "c", "d"]) await given({ label });
  const all = await listTokens(nodes, { limit: 100 });
  const first = await listTokens(nodes, { limit: 2 });
  const { tokens, token } = tokenNames(first.tokens.at(-1)!.tokenId);
  await redis.client.zrem(tokens, first.tokens.at(-1)!.tokenId);
  await redis.client.del(token);
  expect((await listTokens(nodes, { cursor: first.next, limit: 2 })).tokens).toEqual(all.tokens.slice(2, 4));
});

/** Has operators make a token where there may be so many. @returns the outcome */
async function madeAmong(nodes: RedisNodes, most: number, tokenId: string): Promise<string> {
  const fields = { sha256: tokenId, expires_at: Date.now() + 60_000 };
  const call = { tokenId, actor: ANN, most, familyMost: most, fields };
  return (await scriptsOf(nodes.of(0)).run(token, call)).outcome;
}

test("there are no more tokens than a store may have", async () => {
  const most = await redis.client.zcard(tokenNames("").family);
  expect(await madeAmong(nodes, most, "tok_full")).toBe("full");
  expect(await redis.client.exists(tokenNames("tok_full").token)).toBe(0);
});

// Guarantee: a backend that makes tokens for an hour each can go on for ever.
test("a token that has ended is removed after 90 days, and at once where there is no room", async () => {
  const good = ["record", "listed", "found"];
  expect(await removalsWith(nodes)).toEqual({
    withRoom: { old: [], recent: ["record", "listed"], good },
    outcomes: ["created", "full"],
    withoutRoom: { old: [], recent: [], good },
    families: 0,
    digests: 3,
    ended: 3,
  });
});

/** Records of tokens of which one ended long ago and one just now, while others are made. */
async function removalsWith(nodes: RedisNodes): Promise<unknown> {
  const { tokens, tokenIds, endedTokens, family } = tokenNames("");
  const before = await redis.client.zrange(tokens, "0", "-1");
  await redis.client.del(tokens, tokenIds, endedTokens, family, ...before.map((id) => tokenNames(id).token));
  const make = () =>
    createToken(nodes, { label: "x", scopes: SCOPES, expiresAtMs: Date.now() + 60_000 }, ANN);
  const made = { old: await make(), recent: await make(), good: await make() };
  await revokeToken(nodes, made.recent.record.tokenId, ANN);
  const longAgoMs = Date.now() - 90 * 86_400_000 - 1000;
  for (const list of [endedTokens, family])
    await redis.client.zadd(list, "XX", longAgoMs, made.old.record.tokenId);
  await redis.client.zadd(tokenNames(made.old.record.tokenId).family, longAgoMs, "tok_child");
  const left = async ({ token: secret, record: { tokenId } }: typeof made.old) => [
    ...((await redis.client.exists(tokenNames(tokenId).token)) ? ["record"] : []),
    ...((await redis.client.zscore(tokens, tokenId)) === null ? [] : ["listed"]),
    ...((await findToken(nodes, secret)) ? ["found"] : []),
  ];
  const leftOfAll = async () => ({
    old: await left(made.old),
    recent: await left(made.recent),
    good: await left(made.good),
  });
  await make();
  const withRoom = await leftOfAll();
  const outcomes = [await madeAmong(nodes, 3, "tok_third"), await madeAmong(nodes, 3, "tok_fourth")];
  return {
    withRoom,
    outcomes,
    withoutRoom: await leftOfAll(),
    families: await redis.client.exists(tokenNames(made.old.record.tokenId).family),
    digests: await redis.client.hlen(tokenIds),
    ended: await redis.client.zcard(endedTokens),
  };
}

// Guarantee: a token that was stolen has made none that stays, whoever it made them with.
test("a token ends with all that it made, and makes no more than it may, nor one after its end", async () => {
  expect(await familyLife(nodes)).toEqual({
    parents: ["none", "root", "child", "root"],
    refusals: ["conflict", "conflict", "forbidden", "forbidden", "forbidden"],
    byOperators: "created",
    afterExpiry: "made",
    revoked: { root: false, child: true, grandchild: true, sibling: false, later: false },
    found: { root: true, child: false, grandchild: false, sibling: true, later: true },
    audited: { root: 0, child: 1, grandchild: 1, sibling: 0, later: 0 },
    relatives: [2, 0],
    operators: [true, false],
    slices: { left: 10, good: 0, repeated: 1 },
  });
});

/** The life of a family: what is made with whom, refused, and ended with whom. */
async function familyLife(nodes: RedisNodes): Promise<unknown> {
  const { family: operators, tokens } = tokenNames("");
  const wanted = { label: "life", scopes: SCOPES };
  const make = (maker: TokenRecord | undefined, familyMost = 9) =>
    createToken(nodes, wanted, ANN, maker && { ...maker, familyMost });
  const refusal = (work: Promise<unknown>) =>
    work.then(
      () => "made",
      ({ code }: { code: string }) => code,
    );
  const root = await make(undefined);
  const child = await make(root.record);
  const grandchild = await make(child.record);
  const sibling = await make(root.record);
  const made = { root, child, grandchild, sibling };
  const names = new Map(Object.entries(made).map(([name, { record }]) => [record.tokenId, name]));
  const parents = Object.values(made).map(({ record }) => names.get(record.parent ?? "") ?? "none");

  // Three were made with the first; as many as there are, are as many as there may be.
  const { family } = tokenNames(root.record.tokenId);
  const refusals = [await refusal(make(grandchild.record, 3))];
  const most = await redis.client.zcard(tokens);
  const call = { actor: ANN, most, familyMost: 9, fields: { sha256: "digest" } };
  const { run } = scriptsOf(nodes.of(0));
  const full = await run(token, { ...call, tokenId: "tok_x", parent: root.record });
  refusals.push(full.outcome === "full" ? "conflict" : full.outcome);
  const { outcome: byOperators } = await run(token, { ...call, tokenId: "tok_y" });
  await redis.client.zadd(family, 1, "tok_expired");
  const later = await make(root.record, 4);
  const afterExpiry = await refusal(Promise.resolve(later));

  await revokeToken(nodes, child.record.tokenId, ANN);
  const relatives = [await redis.client.zcard(family)];
  refusals.push(await refusal(make(child.record)));
  const { token: name } = tokenNames(sibling.record.tokenId);
  await redis.client.hset(name, "expires_at", 1);
  refusals.push(await refusal(make(sibling.record)));
  await redis.client.hdel(name, "expires_at");
  refusals.push(await refusal(make({ ...sibling.record, tokenId: "tok_gone" })));
  await redis.client.del(tokenNames("tok_gone").token);

  const of = async <T>(read: (one: typeof root) => Promise<T>) =>
    Object.fromEntries(
      await Promise.all(Object.entries({ ...made, later }).map(async ([who, one]) => [who, await read(one)])),
    );
  const revoked = await of(async ({ record }) => {
    return (await readToken(nodes, record.tokenId)).revokedAtMs !== undefined;
  });
  const found = await of(async (one) => (await findToken(nodes, one.token)) !== undefined);
  const { records } = await pageAudit(nodes, { limit: 100 });
  const audited = await of(
    async ({ record: { tokenId } }) =>
      records.filter(({ target, action }) => target === tokenId && action === "token.revoke").length,
  );
  const slices = await sliced(nodes);
  const isTheirs = async () => (await redis.client.zscore(operators, root.record.tokenId)) !== null;
  const listed = [await isTheirs()];
  await revokeToken(nodes, root.record.tokenId, ANN);
  relatives.push(await redis.client.zcard(family));
  listed.push(await isTheirs());
  for (const id of ["tok_x", "tok_y"]) {
    await redis.client.del(tokenNames(id).token);
    await redis.client.zrem(tokens, id);
    await redis.client.zrem(operators, id);
  }
  await redis.client.hdel(tokenNames("").tokenIds, "digest");
  return {
    parents,
    refusals,
    byOperators,
    afterExpiry,
    revoked,
    found,
    audited,
    relatives,
    operators: listed,
    slices,
  };
}

/** Ends a chain of 50 tokens: how many are left after the first call, are good after all, and were audited as revoked twice. */
async function sliced(nodes: RedisNodes): Promise<unknown> {
  const wanted = { label: "chain", scopes: SCOPES };
  const first = await createToken(nodes, wanted, ANN);
  const chain = [first];
  for (const _ of Array.from({ length: 50 }))
    chain.push(await createToken(nodes, wanted, ANN, { ...chain.at(-1)!.record, familyMost: 99 }));
  const { tokenId } = first.record;
  const call = { tokenId, root: tokenId, actor: ANN };
  const reply = await scriptsOf(nodes.of(0)).run(revokeTokenScript, call);
  for (const _ of [1, 2]) await revokeToken(nodes, tokenId, ANN);
  const found = await Promise.all(chain.map(({ token: secret }) => findToken(nodes, secret)));
  const { records } = await pageAudit(nodes, { limit: 100 });
  const ids = new Set(chain.map(({ record }) => record.tokenId));
  const revoked = records.filter(({ target, action }) => action === "token.revoke" && ids.has(target));
  return {
    left: reply.outcome === "revoked" && reply.left,
    good: found.filter((one) => one !== undefined).length,
    repeated: revoked.length / chain.length,
  };
}

// Guarantee: a revocation that was interrupted can be repeated, whatever has become of the tokens that it had ended.
test("tokens of a half revoked family are found though those that have ended were removed", async () => {
  expect(await resumed(nodes)).toEqual({ good: 0, ended: 11 });
});

/**
 * Ends a token and a chain of 50 made with it in two calls; a full store removes what has ended between them.
 * @returns how many are good after all, and have ended and are still there
 */
async function resumed(nodes: RedisNodes): Promise<unknown> {
  const wanted = { label: "chain", scopes: SCOPES };
  const chain = [await createToken(nodes, wanted, ANN)];
  for (const _ of Array.from({ length: 50 }))
    chain.push(await createToken(nodes, wanted, ANN, { ...chain.at(-1)!.record, familyMost: 99 }));
  const { tokenId } = chain[0]!.record;
  const { run } = scriptsOf(nodes.of(0));
  const removeEnded = async () => {
    for (let at = 0; at < 20; at++) await madeAmong(nodes, 1, "tok_full");
  };
  // Tokens of earlier tests leave, too.
  await removeEnded();
  await run(revokeTokenScript, { tokenId, root: tokenId, actor: ANN });
  await removeEnded();
  await revokeToken(nodes, tokenId, ANN).catch(() => undefined);
  const found = await Promise.all(chain.map(({ token: secret }) => findToken(nodes, secret)));
  const { endedTokens } = tokenNames("");
  const ended = new Set(await redis.client.zrangebyscore(endedTokens, "-inf", Date.now()));
  return {
    good: found.filter((one) => one !== undefined).length,
    ended: chain.filter(({ record }) => ended.has(record.tokenId)).length,
  };
}

test.each(inShare(TOKEN_MUTANTS))("the mistake is found: $what", async (mutant) => {
  const good = await sound();
  const found = await lifeWith(mutant).catch((error: Error) => error.message);
  expect(found).not.toEqual(good);
  // A script that does not load proves nothing.
  expect(String(found)).not.toContain("compiling script");
});

// Nor does anything that the mistakes have left behind change what comes after them.
test("two lives without a mistake are the same", async () => {
  expect(await lifeWith()).toEqual(await sound());
});

let first: ReturnType<typeof lifeWith> | undefined;
/** A life without a mistake, before all with one. */
const sound = () => (first ??= lifeWith());

/** The life of one token, each step twice. @returns what records, lists and audit say of it */
const lifeWith = (mutant?: Mutant): Promise<unknown> => withMutant(redis.url, mutant, life);

async function life(nodes: RedisNodes): Promise<unknown> {
  const { token: secret, record } = await createToken(nodes, { label: "life", scopes: SCOPES }, ANN);
  const { token: name, tokens, endedTokens } = tokenNames(record.tokenId);
  const stored = await redis.client.hgetall(name);
  const listed = await redis.client.zscore(tokens, record.tokenId);
  const before = await findToken(nodes, secret);
  const first = await revokeToken(nodes, record.tokenId, ANN);
  await redis.client.hset(name, "revoked_at", 1);
  const second = await revokeToken(nodes, record.tokenId, ANN);
  await redis.client.hdel(name, "revoked_at");
  const after = await findToken(nodes, secret);
  const none = await revokeToken(nodes, "tok_none", ANN).catch((error: { code?: string }) => error.code);
  const forced = { tokenId: "tok_none", root: "tok_none", actor: ANN };
  const missing = (await scriptsOf(nodes.of(0)).run(revokeTokenScript, forced)).outcome;
  await redis.client.del(endedTokens);
  const full = await madeAmong(nodes, await redis.client.zcard(tokenNames("").family), "tok_full");
  await redis.client.zrem(tokens, "tok_full");
  await redis.client.zrem(tokenNames("").family, "tok_full");
  const { records } = await pageAudit(nodes, { limit: 100 });
  const audited = records.filter(({ target }) => target === record.tokenId);
  return {
    by: stored.by,
    listed: listed !== null,
    found: [before !== undefined, after !== undefined],
    revoked: [first.revokedAtMs === undefined, second.revokedAtMs],
    none: [none, missing],
    full,
    family: await familyLife(nodes),
    resumed: await resumed(nodes),
    removals: await removalsWith(nodes),
    audited: audited.map(({ action, by, after }) => [action, by, Object.keys(after).sort()]),
  };
}
