import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { monthOf } from "../../src/domain/moments.ts";
import { type AuditRecord, pageAudit } from "../../src/operations/access/audit.ts";
import { listKeys } from "../../src/operations/accounts/account-lists.ts";
import {
  createAccount,
  patchAccount,
  readAccountObject,
} from "../../src/operations/accounts/operator-accounts.ts";
import { grantCredits } from "../../src/operations/credits/grants.ts";
import { changeKey, revokeKey, rotateKey } from "../../src/operations/keys/change-key.ts";
import { issueKey, issueKeyOnce } from "../../src/operations/keys/issue-key.ts";
import { findKey, readKey } from "../../src/operations/keys/keys.ts";
import { releaseTask } from "../../src/operations/tasks/operator-tasks.ts";
import {
  registerEndpoint,
  rotateSecret,
  type WebhookRules,
} from "../../src/operations/webhooks/endpoints.ts";
import { type Actor, cliActor } from "../../src/records/actor.ts";
import { cursorOf } from "../../src/records/cursors.ts";
import { entryFields } from "../../src/records/ledger-entries.ts";
import {
  accountNames,
  digestOf,
  endpointNames,
  indexName,
  keyNames,
  partitionNames,
  partitionOf,
} from "../../src/records/names.ts";
import { scriptsOf } from "../../src/redis/script-runner.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import { change, revoke } from "../../src/scripts/keys.ts";
import { accountIn } from "../support/account-money.ts";
import { randomId, times } from "../support/store.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { changeCounters, setKeyFields } from "../support/stored-records.ts";
import { givenRequests } from "../support/two-nodes.ts";
import { withMutant } from "./mutant-client.ts";
import { inShare, type Mutant, OPERATOR_MUTANTS } from "./mutants.ts";

// Operators' changes: each change once, with one audit record.

let redis: TestRedis;
let nodes: RedisNodes;
beforeAll(async () => {
  redis = await givenRedis();
  nodes = oneNode(redis.client);
});
afterAll(() => redis.stop());

const ANN: Actor = { by: "tok_1 Ann's shop", requestId: "req_ann" };
const BOB: Actor = { by: "cli bob", requestId: "" };
const DAY_MS = 86_400_000;

const auditOf = async (accountId: string): Promise<AuditRecord[]> =>
  (await pageAudit(nodes, { accountId, limit: 100 })).records.reverse();

const refusal = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => "none",
    (error: { code?: string }) => error.code,
  );

// Guarantee: command line, management API and console say the same of a key, whatever the clocks of their machines say.
test("a key's status and what it has spent in a month are of its server's clock", async () => {
  const expiresAtMs = Date.now() + DAY_MS;
  const { keyId, accountId } = await issueKey(nodes, { expiresAtMs }, ANN);
  const { key: record } = keyNames(partitionOf(accountId, 64), keyId);
  await redis.client.hset(record, "month", monthOf(Date.now()));
  await changeCounters(redis.client, record, { spent: 30 });
  vi.useFakeTimers({ toFake: ["Date"], now: expiresAtMs + 60 * DAY_MS });
  try {
    expect(await findKey(nodes, keyId)).toMatchObject({ status: "active", spentThisMonth: 30 });
    await setKeyFields(redis.client, record, { expires_at: 1 });
    expect(await findKey(nodes, keyId)).toMatchObject({ status: "expired" });
    await revokeKey(nodes, await findKey(nodes, keyId), ANN);
    expect(await findKey(nodes, keyId)).toMatchObject({ status: "revoked" });
  } finally {
    vi.useRealTimers();
  }
});

test("an account is created, changed and read, and a stale revision changes nothing", async () => {
  const metadata = { plan: "gold", seats: 3, path: "C:\\u0000\\ud800", face: "\u{1F600}" };
  const created = await createAccount(nodes, { label: "Ann's shop", metadata }, ANN);
  expect(created).toEqual({
    accountId: expect.stringMatching(/^acc_/),
    priceMultiplier: "1",
    creditsBelow: [],
    label: "Ann's shop",
    metadata,
    status: "active",
    limits: { rate_limit: null, max_concurrent: null, daily_limit: null },
    balance: 0,
    held: 0,
    totalUsed: 0,
    totalRequests: 0,
    createdAtMs: expect.any(Number),
    revision: 0,
  });
  const { accountId } = created;
  expect(await readAccountObject(nodes, accountId)).toEqual(created);
  await expect(createAccount(nodes, { accountId }, ANN)).rejects.toMatchObject({ code: "conflict" });
  const limits = { rate_limit: 9, daily_limit: 100 };
  const changed = await patchAccount(nodes, accountId, { status: "suspended", limits }, BOB, {
    ifRevisions: [0],
  });
  expect(changed).toMatchObject({
    status: "suspended",
    limits: { ...limits, max_concurrent: null },
    revision: 1,
  });
  await expect(
    patchAccount(nodes, accountId, { label: "x" }, BOB, { ifRevisions: [0] }),
  ).rejects.toMatchObject({
    code: "stale",
  });
  const same = await patchAccount(nodes, accountId, { status: "suspended" }, BOB, { ifRevisions: [1] });
  expect(same).toEqual(changed);
  const removed = { label: null, metadata: null, status: "active", limits: { rate_limit: null } } as const;
  expect(await patchAccount(nodes, accountId, removed, BOB)).toMatchObject({
    ...removed,
    limits: { rate_limit: null, daily_limit: 100 },
    revision: 2,
  });
  expect(await auditOf(accountId)).toMatchObject([
    {
      ...ANN,
      action: "account.create",
      accountId,
      target: accountId,
      before: {},
      after: { label: "Ann's shop", metadata },
      atMs: created.createdAtMs,
    },
    {
      ...BOB,
      action: "account.patch",
      before: { status: "active", rate_limit: null, daily_limit: null },
      after: { status: "suspended", rate_limit: 9, daily_limit: 100 },
    },
    { before: { label: "Ann's shop", metadata, status: "suspended", rate_limit: 9 } },
  ]);
});

test.each([
  ["an id with a slash", { accountId: "a/b" }, "account_id"],
  ["a label of two lines", { label: "a\nb" }, "label"],
  ["an empty label", { label: "" }, "label"],
  ["a label that is too long", { label: "x".repeat(101) }, "label"],
  ["metadata that is a list", { metadata: [] as never }, "metadata"],
  ["metadata with U+0000", { metadata: { seats: "a\0b" } }, "metadata"],
  ["metadata with U+0000 in a name", { metadata: { plan: [{ "a\0": 1 }] } }, "metadata"],
  ["metadata with half of a surrogate pair", { metadata: { seats: "\ud800" } }, "metadata"],
  ["metadata that is too large", { metadata: { x: "y".repeat(4096) } }, "metadata"],
])("%s is refused, and nothing is made", async (_, wanted, path) => {
  const accountId = randomId("acc");
  await expect(createAccount(nodes, { accountId, ...wanted }, ANN)).rejects.toMatchObject({
    code: "invalid",
    path,
  });
  await expect(readAccountObject(nodes, accountId)).rejects.toMatchObject({ code: "not_found" });
});

test("an account that does not exist is not changed into one", async () => {
  const accountId = randomId("acc");
  await expect(patchAccount(nodes, accountId, { label: "x" }, ANN)).rejects.toMatchObject({
    code: "not_found",
  });
  await expect(patchAccount(nodes, accountId, { limits: { rate_limit: 1.5 } }, ANN)).rejects.toMatchObject({
    path: "limits/rate_limit",
  });
  expect(await redis.client.exists(accountNames(partitionOf(accountId, 64), accountId).account)).toBe(0);
});

// Guarantee: a key that may do less, or nothing any more, has no heir that may do all.
test("what was changed of a key while it was rotated holds for the new one", async () => {
  const { accountId } = await createAccount(nodes, {}, ANN);
  const issued = await issueKey(nodes, { accountId }, ANN);
  const read = async (keyId: string) => (await readKey(nodes, keyId, accountId))!;
  const before = await read(issued.keyId);
  const allowed = { allowedEndpoints: ["gen2/text-to-video"], allowedAddresses: ["10.0.0.0/8"] };
  await changeKey(nodes, before, { ...allowed, limits: { rate_limit: 3 } }, ANN);
  const heir = await read((await rotateKey(nodes, before, 60_000, ANN)).keyId);
  expect(heir.restrictions).toEqual({ endpoints: allowed.allowedEndpoints, addresses: ["10.0.0.0/8"] });
  expect(heir.limits.rate_limit).toBe(3);
  await revokeKey(nodes, heir, BOB);
  await expect(rotateKey(nodes, heir, 60_000, ANN)).rejects.toMatchObject({ problem: "key_revoked" });
  const { keys } = await listKeys(nodes, accountId, { limit: 100 });
  expect(keys.map(({ keyId, status }) => [keyId, status])).toEqual([
    [issued.keyId, "active"],
    [heir.keyId, "revoked"],
  ]);
});

// Guarantee: a shop that lost the answer asks again, and has one key; the secret is shown once.
test("one Idempotency-Key makes one key, for concurrent calls and for repeats, and another body is refused", async () => {
  const { accountId } = await createAccount(nodes, {}, ANN);
  const options = {
    accountId,
    idempotencyKey: "order-17",
    label: "backend",
    limits: { monthly_credits: 500 },
  };
  const issued = await Promise.all(times(5, () => issueKeyOnce(nodes, options, ANN)));
  const secrets = issued.flatMap(({ key }) => key ?? []);
  expect(secrets).toHaveLength(1);
  expect(new Set(issued.map(({ keyId }) => keyId)).size).toBe(1);
  const { keyId } = issued[0]!;
  expect(await issueKeyOnce(nodes, options, ANN)).toEqual({ keyId, accountId });
  const others = [
    { limits: { monthly_credits: 501 } },
    { tier: "gold" },
    { label: "frontend" },
    { label: undefined },
    { expiresAtMs: Date.now() + DAY_MS },
    { restrictions: { endpoints: undefined, addresses: ["192.0.2.0/24"] } },
  ];
  for (const other of others)
    await expect(
      issueKeyOnce(nodes, { ...options, ...other }, ANN),
      Object.keys(other).join(),
    ).rejects.toMatchObject({ code: "conflict", path: "Idempotency-Key" });
  expect(await findKey(nodes, secrets[0]!)).toMatchObject({
    keyId,
    label: "backend",
    limits: { monthly_credits: 500 },
  });
  expect((await issueKeyOnce(nodes, { ...options, idempotencyKey: "order-18" }, ANN)).keyId).not.toBe(keyId);
  expect((await auditOf(accountId)).map(({ action }) => action)).toEqual([
    "account.create",
    "key.create",
    "key.create",
  ]);
  // The four that lost the race have taken their index back.
  const indexes = await Promise.all(
    (await redis.client.keys(indexName("*"))).map((name) => redis.client.get(name)),
  );
  expect(indexes.filter((entry) => entry === `${keyId} ${accountId}`)).toHaveLength(1);
});

test("a crash between index and record is mended by a repeat", async () => {
  const { accountId } = await createAccount(nodes, {}, ANN);
  const options = { accountId, idempotencyKey: "order-1" };
  const partition = partitionOf(accountId, 64);
  const crashing: RedisNodes = { ...nodes, confirmed: () => Promise.reject(new Error("crash")) };
  await expect(issueKeyOnce(crashing, options, ANN)).rejects.toThrow("crash");
  const { key, keyId } = await issueKeyOnce(nodes, options, ANN);
  expect(await findKey(nodes, key!)).toMatchObject({ keyId, accountId });
  expect(await redis.client.hget(keyNames(partition, keyId).key, "sha256")).toBe(digestOf(key!));
});

// Guarantee: a failover that loses the index of a key does not let a repeat grant its credits twice.
test("while replicas do not answer, no key is made and nothing is granted", async () => {
  const { accountId } = await createAccount(nodes, {}, ANN);
  const unconfirmed: RedisNodes = { ...nodes, confirmed: async () => false };
  for (const work of [
    () => issueKey(unconfirmed, { accountId, credits: 50 }, ANN),
    () => issueKeyOnce(unconfirmed, { accountId, idempotencyKey: "order-1" }, ANN),
  ])
    await expect(work()).rejects.toMatchObject({ code: "unavailable" });
  const { account, keys } = accountNames(partitionOf(accountId, 64), accountId);
  expect(await redis.client.zcard(keys)).toBe(0);
  expect((await accountIn(redis.client, account)).balance).toBe("0");
});

test("a token whose key was begun for one account makes none for another", async () => {
  const [{ accountId }, other] = [await createAccount(nodes, {}, ANN), await createAccount(nodes, {}, ANN)];
  const token = `sk_${randomId("begun")}`;
  const crashing: RedisNodes = { ...nodes, confirmed: () => Promise.reject(new Error("crash")) };
  await expect(issueKey(crashing, { accountId, token }, ANN)).rejects.toThrow("crash");
  await expect(issueKey(nodes, { accountId: other.accountId, token }, ANN)).rejects.toMatchObject({
    problem: "key_exists",
  });
  expect(await redis.client.zcard(accountNames(partitionOf(accountId, 64), accountId).keys)).toBe(0);
  expect(await issueKey(nodes, { accountId, token }, ANN)).toMatchObject({ accountId });
});

// Guarantee: a key that was imported is found, whatever becomes of another call that imports it at the same time.
test.each(["before", "after"])(
  "an import that is refused takes no index from one that ends %s it",
  async (order) => {
    const { client } = redis;
    const { accountId } = await createAccount(nodes, {}, ANN);
    const options = { accountId, token: `sk_${randomId("imported")}` };
    const setStatus = (status: "active" | "closed") => patchAccount(nodes, accountId, { status }, ANN);
    const refused = async (through: RedisNodes) => {
      await setStatus("closed");
      await expect(issueKey(through, options, ANN)).rejects.toMatchObject({ problem: "account_closed" });
      await setStatus("active");
    };
    if (order === "before") {
      const del = async (name: string) => {
        await setStatus("active");
        await issueKey(nodes, options, BOB);
        return client.del(name);
      };
      const slow = new Proxy(client, {
        get: (of, name) => (name === "del" ? del : Reflect.get(of, name, of)),
      });
      await refused({ ...nodes, ofName: () => slow });
    } else {
      // The other call is refused between the index and the record of this one.
      const confirmed = () => refused(nodes).then(() => true);
      await issueKey({ ...nodes, confirmed }, options, BOB);
    }
    expect(await findKey(nodes, options.token)).toMatchObject({ accountId, status: "active" });
  },
);

test("a key is not made for an account that does not exist", async () => {
  const accountId = randomId("acc");
  const before = await redis.client.dbsize();
  await expect(issueKeyOnce(nodes, { accountId, idempotencyKey: "k" }, ANN)).rejects.toMatchObject({
    code: "not_found",
  });
  expect(await redis.client.dbsize()).toBe(before);
});

test("each change has one audit record with what it was before and after, and a repeat has none", async () => {
  const { records, ...seen } = await operated();
  expect(records).toEqual([
    ["account.create", ANN.by, "req_ann", "account", {}, { label: "one" }],
    ["account.patch", BOB.by, "", "account", { label: "one" }, { label: null }],
    ["key.create", ANN.by, "req_ann", "key", {}, { tier: "gold", label: "web", credits: 500 }],
    ["key.patch", BOB.by, "", "key", { tier: "gold", label: "web" }, { tier: "iron", label: null }],
    [
      "credits.grant",
      ANN.by,
      "req_ann",
      "account",
      { balance: 480 },
      { balance: 530, amount: 50, reference: "r" },
    ],
    ["task.release", BOB.by, "", "request", { state: "held" }, { state: "void", credits: 10 }],
    [
      "task.release",
      BOB.by,
      "",
      "task",
      { state: "bound" },
      { state: "finished", status: "failed", refunded: 10 },
    ],
    ["key.create", ANN.by, "req_ann", "key", {}, { tier: "iron" }],
    [
      ...["key.rotate", ANN.by, "req_ann", "key"],
      { rotated_to: null, expires_at: null },
      { rotated_to: "key", expires_at: "a time" },
    ],
    ["key.revoke", BOB.by, "", "key", { revoked_at: null }, { revoked_at: "a time" }],
  ]);
  expect(seen).toEqual({
    refusals: ["conflict", "not_found", "stale", "not_found", "stale", "conflict", "not_found", "conflict"],
    noKey: ["missing", 0],
    released: ["voided", "ended", "already_void", "already_finished"],
    revisions: [1, 2],
    listed: true,
    by: [ANN.by, undefined, ANN.by, BOB.by],
    kept: [false, true],
    revoked: { ghost: ["missing", 0], revisions: [1, 1], keys: [1, 0] },
    restricted: {
      refusals: ["conflict", "stale", "stale", "not_found", "forbidden", "forbidden"],
      audited: ["suspended", "closed", "active", "suspended"],
      revisions: [1, 2, 3, 4],
      inactive: [`suspended account`],
    },
    metadata: expect.any(Array),
  });
});

// Guarantee: no PATCH of 4 KB writes more than that into the audit, and what it changed is still to be read.
test("the audit keeps the members of metadata that differ, long ones cut, and counts those for which there is no room", async () => {
  const [first, second, third] = await metadataAudited(nodes);
  expect(first).toEqual([
    {},
    { metadata: { a: 1, 'q"{,': [1, [2], { b: "]}" }], long: expect.any(String) } },
  ]);
  expect(second).toEqual([
    { metadata: { a: 1, 'q"{,': [1, [2], { b: "]}" }] } },
    { metadata: { a: "2", 'q"{,': [1, [3], { b: "]}" }] } },
  ]);
  const { long } = first![1]!.metadata as { long: string };
  expect(long).toMatch(/^"xé{49}…$/);
  const before = third![0]!.metadata as Record<string, unknown>;
  const after = third![1]!.metadata as Record<string, unknown>;
  expect(before).toEqual({ a: "2", 'q"{,': [1, [3], { b: "]}" }], long: expect.stringMatching(/^ "xé+…$/) });
  expect(after["…"]).toBe(50 - Object.keys(after).length + 1);
  expect(JSON.stringify(third).length).toBeLessThan(1500);
});

test.each([".", ".."])("no new account is called %s; one that there is goes on", async (accountId) => {
  const wrong = { code: "invalid", path: "account_id" };
  await expect(createAccount(nodes, { accountId }, ANN)).rejects.toMatchObject(wrong);
  await expect(issueKey(nodes, { accountId }, ANN)).rejects.toMatchObject(wrong);
  const { account } = accountNames(partitionOf(accountId, 64), accountId);
  await redis.client.hset(account, { money: "0 0 0 0 -", created_at: 1 });
  expect(await issueKey(nodes, { accountId }, ANN)).toMatchObject({ accountId });
  expect(await patchAccount(nodes, accountId, { label: "x" }, ANN)).toMatchObject({ label: "x" });
  await redis.client.del(account);
});

// Guarantee: what is given with a suspension takes effect with it, and an account that is as by default stores nothing of it.
test("a suspension changes what else is given, and defaults are not stored", async () => {
  const { accountId } = await createAccount(nodes, {}, ANN);
  const { account } = accountNames(partitionOf(accountId, 64), accountId);
  const stored = () => redis.client.hmget(account, "status", "label", "alerts", "price_multiplier");
  const creditsBelow = [9, 100, 20, 9, 300];
  const changes = { status: "suspended", label: "late", creditsBelow, priceMultiplier: 0.5 } as const;
  await patchAccount(nodes, accountId, changes, ANN);
  expect(await stored()).toEqual(["suspended", "late", "300 100 20 9", "0.5"]);
  const usual = { status: "active", label: null, creditsBelow: [], priceMultiplier: 1 } as const;
  await patchAccount(nodes, accountId, usual, ANN);
  expect(await stored()).toEqual([null, null, null, null]);
});

// Guarantee: a key that may be used from some addresses only does not lose that by a change of its endpoints, nor the other way round.
test("a change of one kind of restrictions keeps the other", async () => {
  const { keyId } = await issueKey(nodes, {}, ANN);
  const change = async (changes: Parameters<typeof changeKey>[2]) => {
    await changeKey(nodes, await findKey(nodes, keyId), changes, ANN);
    const { endpoints, addresses } = (await findKey(nodes, keyId)).restrictions;
    return [endpoints, addresses];
  };
  const [endpoints, addresses] = [["gen2/text-to-video"], ["10.0.0.0/8"]];
  expect(await change({ allowedAddresses: addresses })).toEqual([undefined, addresses]);
  expect(await change({ allowedEndpoints: endpoints })).toEqual([endpoints, addresses]);
  expect(await change({ allowedAddresses: ["10.1.0.0/16"] })).toEqual([endpoints, ["10.1.0.0/16"]]);
});

// Guarantee: a rotation gives no key a longer life, and without an overlap the old key ends for good.
test("a rotated key ends no later than it would have, and an expired one is not rotated", async () => {
  const expiresAtMs = Date.now() + DAY_MS;
  const given = async () => findKey(nodes, (await issueKey(nodes, { expiresAtMs }, ANN)).keyId);
  const [long, none, expired] = [await given(), await given(), await given()];
  expect(await rotateKey(nodes, long, 2 * DAY_MS, ANN)).toMatchObject({ oldEndsAtMs: expiresAtMs });
  expect(await findKey(nodes, long.keyId)).toMatchObject({ expiresAtMs, status: "active" });
  await rotateKey(nodes, none, 0, ANN);
  expect(await findKey(nodes, none.keyId)).toMatchObject({ expiresAtMs, status: "revoked" });
  await setKeyFields(redis.client, keyNames(expired.partition, expired.keyId).key, { expires_at: 1000 });
  const rotated = rotateKey(nodes, await findKey(nodes, expired.keyId), 0, ANN);
  await expect(rotated).rejects.toMatchObject({ problem: "key_expired" });
});

test.each([Number.NaN, Number.POSITIVE_INFINITY, -1, 253_402_300_800_000])(
  "no key gets the expiry %d, which is no time",
  async (expiresAtMs) => {
    const { accountId } = await createAccount(nodes, {}, ANN);
    const { keyId } = await issueKey(nodes, { accountId }, ANN);
    const once = { accountId, idempotencyKey: "one", expiresAtMs };
    const key = await findKey(nodes, keyId);
    for (const work of [
      () => issueKey(nodes, { accountId, expiresAtMs }, ANN),
      () => issueKeyOnce(nodes, once, ANN),
      () => changeKey(nodes, key, { expiresAtMs }, ANN),
    ])
      await expect(work()).rejects.toMatchObject({ code: "invalid", path: "expires_at" });
  },
);

// Guarantee: a damaged record does not hide what else was changed.
test("the audit is read to its end where a record has an expiry that is no time", async () => {
  const { accountId } = await createAccount(nodes, {}, ANN);
  const { audit } = partitionNames(partitionOf(accountId, 64));
  const record = { at: "1", by: "x", action: "key.patch", account_id: accountId, before: "{}" };
  const fields = Object.entries({ ...record, after: '{"expires_at":"NaN"}' }).flat();
  await redis.client.xadd(audit, "*", ...fields);
  expect(await auditOf(accountId)).toMatchObject([
    { action: "account.create" },
    { action: "key.patch", after: { expires_at: null } },
  ]);
});

test("the audit of all accounts is paged newest first, without gaps or repeats", async () => {
  for (const at of times(30, (at) => at)) await createAccount(nodes, { label: `page ${at}` }, ANN);
  const pages: AuditRecord[][] = [];
  let cursor: string | undefined;
  do {
    const page = await pageAudit(nodes, { cursor, limit: 7 });
    pages.push(page.records);
    cursor = page.next;
  } while (cursor !== undefined);
  const records = pages.flat();
  const counts = await Promise.all(times(64, (at) => redis.client.xlen(partitionNames(at).audit)));
  expect(records).toHaveLength(counts.reduce((sum, count) => sum + count, 0));
  expect(new Set(records.map(({ auditId }) => auditId)).size).toBe(records.length);
  // The id follows the clock of the server; two of one millisecond have different numbers.
  const idOf = ({ auditId }: AuditRecord): number[] => auditId.split("_")[2]!.split("-").map(Number);
  for (const [at, record] of records.slice(1).entries()) {
    const [[ms = 0, number = 0], [olderMs = 0, olderNumber = 0]] = [idOf(records[at]!), idOf(record)];
    expect(ms > olderMs || (ms === olderMs && number >= olderNumber)).toBe(true);
  }
  const one = records[17]!;
  const own: AuditRecord[] = [];
  for (let from: string | undefined, more = true; more; ) {
    const page = await pageAudit(nodes, { accountId: one.accountId, cursor: from, limit: 1 });
    own.push(...page.records);
    from = page.next;
    more = from !== undefined;
  }
  expect(own).toEqual(records.filter(({ accountId }) => accountId === one.accountId));
  const { next } = await pageAudit(nodes, { limit: 7 });
  for (const [accountId, cursor] of [
    [undefined, "made up"],
    [undefined, "1-1.0"],
    [undefined, cursorOf(["audit", undefined], "1")],
    [one.accountId, next],
  ] as const)
    await expect(pageAudit(nodes, { accountId, cursor, limit: 7 }), cursor).rejects.toMatchObject({
      path: "cursor",
    });
});

// Guarantee: whoever gets a new secret has the present one, also where a call whose answer was lost comes late.
test("of two rotations of a webhook's secret that began at the same time one is refused", async () => {
  const { accountId } = await createAccount(nodes, {}, ANN);
  const rules: WebhookRules = {
    ...{ endpointsMax: 1, newSecret: () => randomId("whsec"), seal: (secret) => secret },
    ...{ unseal: (sealed) => sealed, isCurrent: () => true, checkAddress: (url) => ({ ok: true, url }) },
  };
  const { endpoint } = await registerEndpoint(nodes, accountId, { url: "https://shop.example" }, ANN, rules);
  const secret = await rotateSecret(nodes, endpoint, DAY_MS, BOB, rules);
  await expect(rotateSecret(nodes, endpoint, DAY_MS, ANN, rules)).rejects.toMatchObject({ code: "stale" });
  const { endpoint: record } = endpointNames(endpoint.partition, endpoint.endpointId);
  expect(await redis.client.hget(record, "secret")).toBe(secret);
});

// Guarantee: everything that was done has a name and a time; a mistake in that shows.
test.each(inShare(OPERATOR_MUTANTS))("the mistake is found: $what", async (mutant) => {
  const good = await sound();
  const found = await operated(mutant).catch((error: Error) => error.message);
  expect(found).not.toEqual(good);
  // A script that does not load proves nothing.
  expect(String(found)).not.toContain("compiling script");
});

// Nor does anything that the mistakes have left behind change what comes after them.
test("two runs without a mistake are the same", async () => {
  expect(await operated()).toEqual(await sound());
});

let first: ReturnType<typeof operated> | undefined;
/** A run without a mistake, before all with one. */
const sound = () => (first ??= operated());

/** Changes one of everything, twice. @returns what the audit, the ledger and the records say of it */
const operated = (mutant?: Mutant) => withMutant(redis.url, mutant, operate);

/** Audit of three changes of an account's metadata: before and after. */
async function metadataAudited(nodes: RedisNodes): Promise<Readonly<Record<string, unknown>>[][]> {
  const long = `x${"é".repeat(500)}`;
  const list = [1, [2], { b: "]}" }];
  const metadata = { a: 1, 'q"{,': list, long };
  const { accountId } = await createAccount(nodes, { metadata }, ANN);
  const other = [1, [3], { b: "]}" }];
  await patchAccount(nodes, accountId, { metadata: { a: "2", 'q"{,': other, long } }, ANN);
  const many = Object.fromEntries(times(50, (at) => [`member-${100 + at}`, at % 10]));
  // As a store that came from an archive has it: with spaces.
  const { account } = accountNames(partitionOf(accountId, 64), accountId);
  const spaced = `{"a": "2", "q\\"{,": [1, [3], {"b": "]}"}], "long": ${JSON.stringify(long)}}`;
  await nodes.ofName(account).hset(account, "metadata", spaced);
  await patchAccount(nodes, accountId, { metadata: many }, ANN);
  const { records } = await pageAudit(nodes, { accountId, limit: 10 });
  return records.reverse().map(({ before, after }) => [before, after]);
}

/** Suspends, closes and opens an account, each also where it is refused. */
async function restricted(nodes: RedisNodes): Promise<unknown> {
  const accountId = randomId("acc");
  await createAccount(nodes, { accountId }, ANN);
  const { inactive } = partitionNames(partitionOf(accountId, 64));
  await issueKey(nodes, { accountId, keysMax: 2 }, ANN);
  await issueKey(nodes, { accountId, keysMax: 2 }, ANN);
  const revisions: number[] = [];
  const set = async (changes: Parameters<typeof patchAccount>[2], rules = {}) => {
    revisions.push((await patchAccount(nodes, accountId, changes, BOB, rules)).revision);
  };
  const refusals = [await refusal(issueKey(nodes, { accountId, keysMax: 2 }, ANN))];
  const stale = { ifRevisions: [9, 10] };
  refusals.push(await refusal(set({ status: "suspended" }, stale)));
  await set({ status: "suspended" }, { ifRevisions: [7, 0], mayReinstate: false });
  await patchAccount(nodes, accountId, { status: "suspended" }, BOB);
  refusals.push(await refusal(set({ status: "closed" }, { ifRevisions: [11] })));
  await set({ status: "closed" }, { mayReinstate: false });
  refusals.push(await refusal(patchAccount(nodes, randomId("acc"), { status: "closed" }, BOB)));
  refusals.push(await refusal(set({ status: "suspended" }, { mayReinstate: false })));
  refusals.push(await refusal(set({ status: "active", label: "x" }, { mayReinstate: false })));
  await set({ status: "active" });
  await set({ status: "suspended" }, { mayReinstate: false });
  const { records } = await pageAudit(nodes, { accountId, limit: 100 });
  const listed = await nodes.ofName(inactive).zrange(inactive, "0", "-1");
  return {
    refusals,
    audited: records
      .reverse()
      .filter(({ action }) => action === "account.patch")
      .map(({ after }) => after.status),
    revisions,
    inactive: listed.filter((one) => one.includes(accountId)).map((one) => one.replace(accountId, "account")),
  };
}

/** Revokes a key twice, and one that there is not. */
async function revokedKeys(nodes: RedisNodes): Promise<unknown> {
  const { keyId, accountId } = await issueKey(nodes, { tier: randomId("tier") }, ANN);
  const key = await findKey(nodes, keyId);
  const ghost = randomId("key");
  const call = { keyId: ghost, partition: key.partition, actor: BOB };
  const outcome = await scriptsOf(nodes.of(key.partition)).run(revoke, call);
  const { tiers } = partitionNames(key.partition);
  const counted = async () => Number((await nodes.ofName(tiers).hget(tiers, key.tier)) ?? 0);
  const keys = [await counted()];
  const revisions: (number | undefined)[] = [];
  for (const _ of [1, 2]) {
    await revokeKey(nodes, key, BOB);
    revisions.push((await readKey(nodes, keyId, accountId))?.revision);
  }
  keys.push(await counted());
  const { key: name } = keyNames(key.partition, ghost);
  const left = await nodes.ofName(name).exists(name);
  await nodes.ofName(name).del(name);
  return { ghost: [outcome, left], revisions, keys };
}

async function operate(nodes: RedisNodes): Promise<{ records: unknown[] } & Record<string, unknown>> {
  const accountId = randomId("acc");
  const partition = partitionOf(accountId, 64);
  const { audit, accounts } = partitionNames(partition);
  const client = nodes.of(partition);
  await client.del(audit);
  const refusals: unknown[] = [];
  await createAccount(nodes, { accountId, label: "one" }, ANN);
  refusals.push(await refusal(createAccount(nodes, { accountId }, BOB)));
  refusals.push(await refusal(patchAccount(nodes, randomId("acc"), { label: "x" }, BOB)));
  for (const _ of [1, 2]) await patchAccount(nodes, accountId, { label: null }, BOB);
  refusals.push(await refusal(patchAccount(nodes, accountId, { label: "two" }, BOB, { ifRevisions: [0] })));
  const listed = (await pageOfAccounts(client, accounts)).includes(accountId);

  const options = { accountId, tier: "gold", label: "web", credits: 500 };
  const issued = await issueKey(nodes, options, ANN);
  refusals.push(await refusal(issueKeyOnce(nodes, { accountId: randomId("acc"), idempotencyKey: "k" }, ANN)));
  const key = await findKey(nodes, issued.keyId);
  for (const _ of [1, 2]) await changeKey(nodes, key, { tier: "iron", label: null }, BOB, [_ === 1 ? 0 : 1]);
  refusals.push(await refusal(changeKey(nodes, key, { tier: "gold" }, BOB, [0])));
  const ghost = randomId("key");
  const { outcome } = await scriptsOf(client).run(change, {
    actor: cliActor(),
    keyId: ghost,
    partition,
    fields: { tier: "x" },
  });
  const noKey = [outcome, await client.exists(keyNames(partition, ghost).key)];

  await givenRequests(nodes, issued, accountId);
  for (const _ of [1, 2]) await grantCredits(nodes, accountId, 50, "r", ANN);
  const released: unknown[] = [];
  for (const _ of [1, 2])
    for (const kind of ["held", "charged"])
      released.push((await releaseTask(nodes, `req_${kind}_${accountId}`, BOB)).outcome);

  const rotated = await rotateKey(nodes, (await readKey(nodes, key.keyId, accountId))!, 60_000, ANN);
  const fresh = (await readKey(nodes, rotated.keyId, accountId))!;
  // As it was before, and one that is not there.
  for (const gone of [key, { ...key, keyId: ghost }])
    refusals.push(await refusal(rotateKey(nodes, gone, 60_000, BOB)));
  for (const _ of [1, 2]) await revokeKey(nodes, fresh, BOB);
  refusals.push(await refusal(changeKey(nodes, fresh, { tier: "gold" }, BOB)));
  const old = await readKey(nodes, key.keyId, accountId);

  const names: Record<string, string> = {
    [accountId]: "account",
    [issued.keyId]: "key",
    [rotated.keyId]: "key",
  };
  names[`req_held_${accountId}`] = "request";
  names[`task_${accountId}`] = "task";
  const { records } = await pageAudit(nodes, { accountId, limit: 100 });
  const named = (fields: AuditRecord["before"]) =>
    Object.fromEntries(
      Object.entries(fields).map(([field, value]) => [
        field,
        field.endsWith("_at") && value !== null ? "a time" : (names[String(value)] ?? value),
      ]),
    );
  const entries = await client.xrange(partitionNames(partition).ledger, "-", "+");
  const fields = entries
    .map(([, flat]) => Object.entries(entryFields(flat)).flat())
    .filter((flat) => flat.includes(accountId));
  return {
    records: records
      .reverse()
      .map((one) => [
        one.action,
        one.by,
        one.requestId,
        names[one.target],
        named(one.before),
        named(one.after),
      ]),
    refusals,
    noKey,
    released,
    revisions: [(await readAccountObject(nodes, accountId)).revision, old?.revision],
    listed,
    by: fields.map((flat) => (flat.includes("by") ? flat[flat.indexOf("by") + 1] : undefined)),
    kept: await keptAfter(nodes, audit, accountId),
    revoked: await revokedKeys(nodes),
    restricted: await restricted(nodes),
    metadata: await metadataAudited(nodes),
  };
}

const pageOfAccounts = (client: RedisNodes extends { of(at: number): infer R } ? R : never, name: string) =>
  client.zrange(name, "0", "-1");

/** True for records of 91 days ago, and of 89.5 days ago, if they are there after the next change. */
async function keptAfter(nodes: RedisNodes, audit: string, accountId: string): Promise<boolean[]> {
  const client = nodes.ofName(audit);
  await client.del(audit);
  const [old, young] = [91, 89.5].map((days) => Date.now() - days * DAY_MS);
  // A stream is trimmed by nodes of a hundred entries.
  for (const atMs of [old!, young!])
    for (const at of times(100, (at) => at)) await client.xadd(audit, `${atMs}-${at}`, "by", "x", "at", atMs);
  await patchAccount(nodes, accountId, { label: randomId("label") }, BOB);
  const kept = await client.xrange(audit, "-", "+");
  await client.del(audit);
  return [old!, young!].map((atMs) => kept.some(([id]) => id.startsWith(`${atMs}-`)));
}
