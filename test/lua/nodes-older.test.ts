import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Redis } from "ioredis";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { detachArchive } from "../../src/archive/archive-record.ts";
import { LastConfirmedFile } from "../../src/durability/losses/last-confirmed.ts";
import { correctCharges } from "../../src/ledger/corrections.ts";
import { adjustCredits } from "../../src/operations/credits/adjustments.ts";
import { grantCredits } from "../../src/operations/credits/grants.ts";
import { refundTask } from "../../src/operations/credits/refunds.ts";
import { reverseGrant } from "../../src/operations/credits/reversals.ts";
import { changeKey, revokeKey, rotateKey } from "../../src/operations/keys/change-key.ts";
import { type IssuedKey, issueKey } from "../../src/operations/keys/issue-key.ts";
import { findKey } from "../../src/operations/keys/keys.ts";
import { freezePartitions, thawPartitions } from "../../src/operations/store/freezing.ts";
import { findWritable } from "../../src/operations/store/operator-loss.ts";
import { releaseTask } from "../../src/operations/tasks/operator-tasks.ts";
import { resealSecrets } from "../../src/operations/webhooks/endpoints.ts";
import { cliActor } from "../../src/records/actor.ts";
import { readLedger } from "../../src/records/ledger-entries.ts";
import { digestOf, indexName, META, partitionNames, partitionOf } from "../../src/records/names.ts";
import { type RedisNodes, storedFacts } from "../../src/redis/store-facts.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { randomId } from "../support/store.ts";
import { givenRequests, startTwoNodes, type TwoNodes } from "../support/two-nodes.ts";

// Two servers, of which one is older than what it confirmed: nothing is written to it, and the other is used.

const PARTITIONS = 64;
const REFUSED = "older than what it confirmed, and nothing is written to it";

let dir: string;
let two: TwoNodes;
let nodes: RedisNodes;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "tollgate-older-"));
  two = await startTwoNodes(dir);
  nodes = two.nodes;
  await issueKey(nodes, {}, cliActor());
});
afterEach(() => nodes.ofName(META).hdel(META, "loss"));
afterAll(async () => {
  await two?.stop();
  await rm(dir, { recursive: true, force: true });
});

const partitionOn = (redis: Redis): number => {
  for (let at = 0; ; at++) if (nodes.of(at) === redis) return at;
};
const serverOf = (accountId: string): Redis => nodes.of(partitionOf(accountId, PARTITIONS));
const indexServer = (token: string): Redis => nodes.ofName(indexName(digestOf(token)));

/** The first of these random ids that fits. */
function idWhere(prefix: string, fits: (id: string) => boolean): string {
  for (;;) {
    const id = randomId(prefix);
    if (fits(id)) return id;
  }
}

/** Reports a loss as a gateway that has found one server older than the entries that it confirmed. */
async function reportLoss(redis: Redis): Promise<void> {
  const ledgers = [partitionNames(partitionOn(redis)).ledger];
  await nodes
    .ofName(META)
    .hset(META, "loss", JSON.stringify({ acceptedAt: 0, missing: [], charges: [], ledgers }));
}

/** All that a server holds. */
async function everythingOn(redis: Redis): Promise<Record<string, unknown>> {
  const names = (await redis.keys("*")).sort();
  return Object.fromEntries(
    await Promise.all(names.map(async (name) => [name, (await redis.dumpBuffer(name))?.toString("base64")])),
  );
}

/** Nodes by which operators' functions know which servers are older. */
const knowing = async (): Promise<RedisNodes> => ({ ...nodes, ...(await findWritable(nodes, undefined)) });

interface Given {
  key: IssuedKey;
  /** Suffix of its requests' names. */
  name: string;
  /** Where its account is. */
  server: Redis;
}

async function givenOn(server: Redis): Promise<Given> {
  const accountId = idWhere("acc", (id) => serverOf(id) === server);
  const token = idWhere("sk_token", (id) => indexServer(id) === server);
  const key = await issueKey(nodes, { accountId, token, credits: 100 }, cliActor());
  const name = randomId("n");
  await givenRequests(nodes, key, name);
  return { key, name, server };
}

/** Operators' writes to the server of one account alone. */
const WRITES: Record<string, (nodes: RedisNodes, given: Given) => Promise<unknown>> = {
  "a grant": (nodes, { key }) => grantCredits(nodes, key.accountId, 5, "invoice 1", cliActor()),
  "a reversal": (nodes, { key }) =>
    reverseGrant(nodes, key.accountId, { of: "invoice 1", reference: "r-1", reason: "r" }, cliActor()),
  "an adjustment": (nodes, { key }) =>
    adjustCredits(nodes, key.accountId, { amount: 1, reference: "a-1", reason: "r" }, cliActor()),
  "a key of an account": (nodes, { key, server }) =>
    issueKey(
      nodes,
      {
        accountId: key.accountId,
        token: idWhere("sk_token", (id) => indexServer(id) === server),
      },
      cliActor(),
    ),
  "a key's limits": async (nodes, { key }) =>
    changeKey(nodes, await findKey(nodes, key.keyId), { limits: { rate_limit: 7 } }, cliActor()),
  "the release of a hold": (nodes, { name }) => releaseTask(nodes, `req_held_${name}`, cliActor()),
  "the release of a task": (nodes, { name }) => releaseTask(nodes, `task_${name}`, cliActor()),
  "a rotation": async (nodes, { key }) => {
    const { keyId } = await rotateKey(nodes, await findKey(nodes, key.keyId), 60_000, cliActor());
    await revokeKey(nodes, await findKey(nodes, keyId), cliActor());
  },
  "a revocation": async (nodes, { key }) => revokeKey(nodes, await findKey(nodes, key.keyId), cliActor()),
};

const asItIs = (secret: string): string => secret;
const SEALING = { seal: asItIs, unseal: asItIs, isCurrent: () => false };

/** Operators' writes to it, and to another server or before it, or of a task that has not ended. */
const WIDER_WRITES: Record<string, (nodes: RedisNodes, given: Given) => Promise<unknown>> = {
  "a key whose index is there": (nodes, { server }) =>
    issueKey(
      nodes,
      {
        accountId: idWhere("acc", (id) => serverOf(id) !== server),
        token: idWhere("sk_token", (id) => indexServer(id) === server),
      },
      cliActor(),
    ),
  // A crash has left the index alone. It names the account, which nobody names again.
  "a key that was begun": async (nodes, { server }) => {
    const token = idWhere("sk_token", (id) => indexServer(id) !== server);
    const accountId = idWhere("acc", (id) => serverOf(id) === server);
    const name = indexName(digestOf(token));
    await nodes.ofName(name).set(name, `${randomId("key")} ${accountId}`);
    await issueKey(nodes, { token }, cliActor()).finally(() => nodes.ofName(name).del(name));
  },
  "a refund": (nodes, { name }) =>
    refundTask(nodes, `task_${name}`, { reference: "f-1", reason: "r" }, cliActor()),
  corrections: (nodes) =>
    correctCharges(
      nodes,
      { fromMs: 0, toMs: 1, prices: [], reference: "c-1", reason: "r", isDryRun: false },
      cliActor(),
    ),
  "a freeze": (nodes, { server }) => freezePartitions(nodes, [partitionOn(server)]),
  "a thaw": (nodes, { server }) => thawPartitions(nodes, [partitionOn(server)]),
  "the end of an archive": (nodes) => detachArchive(nodes),
  "the sealing of webhooks' secrets": (nodes) => resealSecrets(nodes, cliActor(), SEALING),
};

// Guarantee: what may be replaced by a newer copy gets no write of an operator, and accounts elsewhere are worked on.
describe.each([
  ["with tg:meta", (redis: Redis) => redis === nodes.ofName(META)],
  ["without tg:meta", (redis: Redis) => redis !== nodes.ofName(META)],
] as const)("while the server %s is older", (_, isIt) => {
  test("it gets no write, and nothing is begun on the other", async () => {
    const older = nodes.all().find(isIt)!;
    const given = await givenOn(older);
    await reportLoss(older);
    const all = await knowing();
    const before = await Promise.all(nodes.all().map(everythingOn));
    for (const [what, write] of Object.entries({ ...WRITES, ...WIDER_WRITES }))
      await expect(write(all, given), what).rejects.toThrow(REFUSED);
    expect(await Promise.all(nodes.all().map(everythingOn))).toEqual(before);
  });

  test("the other gets writes", async () => {
    const [older, other] = nodes.all().toSorted((a, b) => Number(isIt(b)) - Number(isIt(a))) as [
      Redis,
      Redis,
    ];
    const given = await givenOn(other);
    await reportLoss(older);
    const all = await knowing();
    const before = await everythingOn(older);
    for (const [what, write] of Object.entries(WRITES)) {
      await expect(write(all, given), what).resolves.not.toThrow();
    }
    expect(await everythingOn(older)).toEqual(before);
    expect(await findKey(nodes, given.key.keyId)).toMatchObject({
      limits: { rate_limit: 7 },
      revokedAtMs: expect.any(Number),
    });
  });
});

test("a server is older also if only the files of a gateway on this machine know it", async () => {
  const [older, other] = nodes.all() as [Redis, Redis];
  const keys = await Promise.all([older, other].map(async (redis) => (await givenOn(redis)).key.accountId));
  const { id = "" } = await storedFacts(nodes);
  const folder = join(dir, "marks");
  const marks = new LastConfirmedFile(folder, createLogger("silent"));
  for (const accountId of keys) {
    const partition = partitionOf(accountId, PARTITIONS);
    const redis = nodes.of(partition);
    const entry = (await readLedger(redis, partition, "0-0")).at(-1)!;
    const confirmed = { id: entry.streamId, accountId, kind: "grant", credits: 100, reference: "" };
    const isLost = redis === older;
    marks.keep(
      id,
      partitionNames(partition).ledger,
      isLost ? { ...confirmed, id: "99999999999999-0" } : confirmed,
    );
  }
  await marks.save();
  const { requireWritable } = await findWritable(nodes, folder);
  expect(() => requireWritable([other])).not.toThrow();
  expect(() => requireWritable([other, older])).toThrow(`${older.options.port} is ${REFUSED}`);
});

// Which server a new key's index and a new account are on is chance otherwise.
test("new keys and accounts are made on the servers that are writable", async () => {
  const [older] = nodes.all() as [Redis, Redis];
  await reportLoss(older);
  const all = await knowing();
  for (let at = 0; at < 20; at++) {
    const { key, accountId } = await issueKey(all, {}, cliActor());
    expect([serverOf(accountId), indexServer(key)]).not.toContain(older);
  }
});

test("a loss of the whole store is one of every server", async () => {
  await nodes.ofName(META).hset(META, "loss", JSON.stringify({ acceptedAt: 0, missing: [], charges: [] }));
  const { requireWritable } = await findWritable(nodes, undefined);
  for (const redis of nodes.all()) expect(() => requireWritable([redis])).toThrow(REFUSED);
});

test("of a store without a loss every server is written to", async () => {
  const { requireWritable } = await findWritable(nodes, undefined);
  expect(() => requireWritable(nodes.all())).not.toThrow();
});
