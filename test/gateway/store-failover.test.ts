import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { LastConfirmedFile, readLastConfirmed } from "../../src/durability/losses/last-confirmed.ts";
import { openJournal } from "../../src/durability/outbox/journal.ts";
import { createTerms } from "../../src/durability/terms.ts";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { grantCredits } from "../../src/operations/credits/grants.ts";
import { type IssuedKey, issueKey } from "../../src/operations/keys/issue-key.ts";
import { acceptStore } from "../../src/operations/store/operator-loss.ts";
import { cliActor } from "../../src/records/actor.ts";
import {
  accountNames,
  keyRef,
  META,
  partitionNames,
  partitionOf,
  replayedName,
  requestName,
  termName,
} from "../../src/records/names.ts";
import { createConnection, type OpenPrimary } from "../../src/redis/connection.ts";
import type { Primary } from "../../src/redis/primary.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { everythingOn } from "../../src/redis/topology/primary-map.ts";
import type { Generation } from "../../src/scripts/holds.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { createMetrics } from "../../src/telemetry/metrics.ts";
import { accountIn, addMoney } from "../support/account-money.ts";
import { ENDPOINT, newTask, openStore, randomId, TIERS, taskOf, times } from "../support/store.ts";
import { givenPair, givenRedis, type Pair, type TestRedis } from "../support/store-stage.ts";
import { readRequest } from "../support/stored-requests.ts";
import { until } from "../support/until.ts";

// A primary, a replica that has everything, and one that lags: its link is cut, and it is promoted all the same.

const CONFIRM_TIMEOUT_MS = 400;
const RETENTION_MS = 3_600_000;
const CREDITS = 1000;
const PRICE = 10;

let pair: Pair;
let lagging: TestRedis;
let folders: string[];
let opened: { close(): Promise<void> }[];
beforeEach(async () => {
  pair = await givenPair();
  lagging = await givenRedis();
  await lagging.client.replicaof("127.0.0.1", pair.primary.port);
  const isInStep = async (): Promise<boolean> =>
    /^master_link_status:up/m.test(await lagging.client.info("replication"));
  await until(isInStep, "the second replica to have caught up");
  folders = [];
  opened = [];
});
afterEach(async () => {
  await Promise.all(opened.map((one) => one.close()));
  await lagging.stop();
  await pair.stop();
  for (const folder of folders) rmSync(folder, { recursive: true });
});

/** A store as a gateway with a disk of its own has it. */
async function givenStore(settling: { othersWithinMs?: number } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "tollgate-failover-"));
  folders.push(folder);
  const lines: string[] = [];
  const log = createLogger("info", { write: (line: string) => void lines.push(line) });
  const metrics = createMetrics();
  let open: OpenPrimary | undefined;
  const connection = createConnection({
    redisUrl: pair.primary.url,
    commandTimeoutMs: 10_000,
    partitions: 64,
    allowNoPersistence: true,
    confirm: { replicas: 1, timeoutMs: CONFIRM_TIMEOUT_MS },
    place(opens) {
      open = opens;
      return everythingOn(opens({ redisUrl: pair.primary.url }));
    },
    log,
    metrics,
  });
  const journal = await openJournal(folder, log);
  const store = openStore(connection, { journal, confirmedFolder: folder, log, ...settling });
  await connection.usable();
  const { confirmation } = connection.of(0);
  await until(async () => (await confirmation?.confirmed()) === "replicas", "a confirmed round");
  let closed: Promise<void> | undefined;
  const close = (): Promise<void> => {
    closed ??= connection.close().then(store.settlements.close);
    return closed;
  };
  opened.push({ close });
  return {
    folder,
    store,
    connection,
    close,
    /** Another server is the primary now. */
    moveTo: ({ url }: TestRedis): void => connection.replaceMap(everythingOn(open!({ redisUrl: url }))),
    isUsable: (): boolean => !connection.of(0).breaker.isOpen,
    logged: (text: string): Promise<void> =>
      until(() => lines.some((line) => line.includes(text)), `the log to say: ${text}`),
    async replayed(outcome: string): Promise<number | undefined> {
      const { values } = await metrics.replayedCharges.get();
      return values.find(({ labels }) => labels.outcome === outcome)?.value;
    },
    async ids(): Promise<string[]> {
      const { values } = await metrics.primaryInfo.get();
      return values.map(({ labels }) => String(labels.replication_id));
    },
    async admitted(key: IssuedKey): Promise<Generation> {
      const { keyId, accountId } = key;
      const generation: Generation = {
        requestId: randomId("req"),
        key: keyRef(keyId, accountId, partitionOf(accountId, 64)),
        price: PRICE,
        endpoint: ENDPOINT,
        holdMs: 60_000,
        retentionMs: RETENTION_MS,
      };
      expect((await store.admit(generation, TIERS)).outcome).toBe("admitted");
      return generation;
    },
    async bind(generation: Generation): Promise<void> {
      expect(await store.bind(generation, newTask(taskOf(generation)))).toBe("bound");
    },
  };
}

type TestStore = Awaited<ReturnType<typeof givenStore>>;

/** As a gateway without a disk has them, which looks as often as it is asked. */
function termsOf(connection: TestStore["connection"]) {
  const log = createLogger("silent");
  return {
    terms: createTerms(connection, { file: new LastConfirmedFile(undefined, log), log, lookEveryMs: 0 }),
    on: (redis: TestRedis, address: Pick<TestRedis, "url"> = redis): Primary =>
      ({
        ...connection.of(0),
        redis: redis.client,
        endpoint: { redisUrl: address.url },
      }) as Primary,
  };
}

const givenKey = (): Promise<IssuedKey> =>
  issueKey(
    oneNode(pair.primary.client),
    {
      credits: CREDITS,
      limits: { rate_limit: 1000, max_concurrent: 1000 },
    },
    cliActor(),
  );

const stateAt = async ({ client }: TestRedis, { key, requestId }: Generation): Promise<string | null> =>
  (await readRequest(client, requestName(key.partition, requestId))).state ?? null;

const balanceAt = async ({ client }: TestRedis, { accountId }: IssuedKey): Promise<number> =>
  Number((await accountIn(client, accountNames(partitionOf(accountId, 64), accountId).account)).balance);

/** Both replicas have all that was written so far: WAIT counts up to the connection's own last write. */
async function replicated(): Promise<void> {
  const { client } = pair.primary;
  await client.set("mark", randomId("mark"));
  expect(await client.wait(2, 60_000)).toBe(2);
}

/** The lagging replica has what was written so far, and nothing that comes. */
async function cutLagging(): Promise<void> {
  await replicated();
  await lagging.client.replicaof("NO", "ONE");
}

/** The primary and its good replica are lost at once. */
async function loseBoth(): Promise<void> {
  pair.replica.resume();
  await pair.primary.kill();
  await pair.replica.kill();
}

/** The store's last entry of this account's ledger, once the gateway knows that replicas have it. */
async function noted({ folder }: TestStore, { accountId }: IssuedKey): Promise<void> {
  const { ledger } = partitionNames(partitionOf(accountId, 64));
  const [last] = await pair.primary.client.xrevrange(ledger, "+", "-", "COUNT", 1);
  await until(
    () => [...readLastConfirmed(folder).values()].some(({ entries }) => entries.get(ledger)?.id === last![0]),
    "the entry to be noted",
  );
}

// Guarantee: an answered charge survives a failover to a replica that lags, and nobody has to do anything.
test("charges that a changed primary lacks are made again before it is used, whether replicas had them or the journal", async () => {
  const gateway = await givenStore();
  const key = await givenKey();
  const before = await gateway.admitted(key);
  await gateway.bind(before);
  const heldBefore = await gateway.admitted(key);
  await cutLagging();
  const generations = [heldBefore, ...(await Promise.all(times(4, () => gateway.admitted(key))))];
  for (const generation of generations.slice(0, 3)) await gateway.bind(generation);
  await noted(gateway, key);
  pair.replica.pause();
  for (const generation of generations.slice(3)) await gateway.bind(generation);
  const neverCharged = await gateway.admitted(key);

  await loseBoth();
  expect(await balanceAt(lagging, key)).toBe(CREDITS - PRICE);
  gateway.moveTo(lagging);
  await gateway.connection.of(0).breaker.closed();
  for (const generation of [before, ...generations]) expect(await stateAt(lagging, generation)).toBe("bound");
  expect(await stateAt(lagging, neverCharged)).toBeNull();
  expect(await balanceAt(lagging, key)).toBe(CREDITS - PRICE * (1 + generations.length));
  expect(await lagging.client.hget(META, "loss")).toBeNull();
  expect(await gateway.replayed("late")).toBe(generations.length - 1);
  // Lost holds and counts are no violation.
  expect((await verifyLedger(oneNode(lagging.client))).violations).toEqual([]);
  // The ledger is looked at again, and its new end is one that replicas do not have.
  await gateway.bind(await gateway.admitted(key));
  expect(gateway.isUsable()).toBe(true);
});

// Guarantee: whoever runs the gateway is told of each answered charge that nobody can make again.
test("a charge that a changed primary lacks, and whose credits are gone there, is named in the log and counted", async () => {
  const gateway = await givenStore();
  const key = await givenKey();
  await cutLagging();
  const lost = await gateway.admitted(key);
  await gateway.bind(lost);
  await loseBoth();
  const { account } = accountNames(partitionOf(key.accountId, 64), key.accountId);
  await addMoney(lagging.client, account, "balance", -CREDITS);
  gateway.moveTo(lagging);
  await gateway.connection.of(0).breaker.closed();
  expect(await readRequest(lagging.client, requestName(lost.key.partition, lost.requestId))).toMatchObject({
    state: "bound",
    uncollected: "1",
  });
  await gateway.logged("a primary has lost an answered charge");
  expect(await gateway.replayed("uncollected")).toBe(1);
});

// Guarantee: as above, also on a machine whose clock is not that of Redis.
test("a charge that is deferred before the changed primary has said its time keeps no other from being made again", async () => {
  Object.defineProperty(performance, "timeOrigin", {
    configurable: true,
    value: performance.timeOrigin + 60_000,
  });
  try {
    const gateway = await givenStore();
    const key = await givenKey();
    const [deferred, answered] = [await gateway.admitted(key), await gateway.admitted(key)];
    await cutLagging();
    await gateway.bind(answered);
    await loseBoth();
    gateway.moveTo(lagging);
    expect(await gateway.store.bind(deferred, newTask(taskOf(deferred)))).toBeUndefined();
    await gateway.connection.of(0).breaker.closed();
    expect(await stateAt(lagging, deferred)).toBe("bound");
    expect(await stateAt(lagging, answered)).toBe("bound");
  } finally {
    Reflect.deleteProperty(performance, "timeOrigin");
  }
});

// Guarantee: a Redis without memory still settles and answers polls, also behind a failover.
test("a changed primary that has no memory left is used, and gets the charges that it lacks", async () => {
  const gateway = await givenStore();
  const key = await givenKey();
  const generation = await gateway.admitted(key);
  await cutLagging();
  await gateway.bind(generation);
  await loseBoth();
  await lagging.client.config("SET", "maxmemory", "1");
  gateway.moveTo(lagging);
  await until(gateway.isUsable, "the new primary to be used");
  expect(await stateAt(lagging, generation)).toBe("bound");
});

// Guarantee: a charge that two faults have destroyed is found, named and stops its primary until an operator accepts it.
test("charges and grants that replicas had, and that nobody can make again, stop the primary and are named", async () => {
  const gateway = await givenStore({ othersWithinMs: 1500 });
  const ended = await givenStore();
  const [charged, granted, untouched] = [await givenKey(), await givenKey(), await givenKey()];
  await noted(gateway, untouched);
  const generation = await ended.admitted(charged);
  await cutLagging();
  await ended.bind(generation);
  await grantCredits(oneNode(pair.primary.client), granted.accountId, 50, "invoice 7", cliActor());
  await noted(gateway, charged);
  await noted(gateway, granted);
  await ended.close();
  // A charge of the gateway that lives is made again. It does not hide the one before it.
  const later = await gateway.admitted(charged);
  await gateway.bind(later);
  await noted(gateway, charged);

  await loseBoth();
  gateway.moveTo(lagging);
  await gateway.logged("waiting for other gateways to send them again");
  expect(await lagging.client.hget(META, "loss")).toBeNull();
  await gateway.logged("older than what it confirmed");
  expect(await stateAt(lagging, later)).toBe("bound");
  const { missing } = JSON.parse((await lagging.client.hget(META, "loss"))!);
  expect(missing).toHaveLength(2);
  expect(missing).toEqual(
    expect.arrayContaining([
      expect.objectContaining({ kind: "charge", requestId: generation.requestId }),
      expect.objectContaining({ kind: "grant", accountId: granted.accountId, reference: "invoice 7" }),
    ]),
  );
  expect(gateway.isUsable()).toBe(false);
  const accepted = await acceptStore(oneNode(lagging.client), gateway.folder, []);
  expect(accepted.lost.entries.map(({ requestId, reference }) => requestId ?? reference).sort()).toEqual(
    [generation.requestId, "invoice 7"].sort(),
  );
  await gateway.connection.of(0).breaker.closed();
  expect(await balanceAt(lagging, charged)).toBe(CREDITS - PRICE);
});

// Guarantee: no gateway admits on a balance that an answered charge of another gateway needs.
test("a changed primary is not used before all gateways that lived have sent again what it lacks", async () => {
  const [one, two] = [await givenStore(), await givenStore()];
  const key = await givenKey();
  await cutLagging();
  const generation = await two.admitted(key);
  await two.bind(generation);
  await loseBoth();
  const signs = (): Promise<string[]> => lagging.client.hvals(replayedName(0));
  const before = await signs();
  one.moveTo(lagging);
  const whenUsed = one.connection
    .of(0)
    .breaker.closed()
    .then(() => stateAt(lagging, generation));
  await until(async () => (await signs()).some((sign) => !before.includes(sign)), "the first to have signed");
  two.moveTo(lagging);
  expect(await whenUsed).toBe("bound");
  expect(await two.replayed("late")).toBe(1);
});

// Guarantee: of two servers that both take writes, only one charges.
test("a primary that stays writable after another was promoted by hand is left by all gateways, and what it charged is made again", async () => {
  const [stays, moves] = [await givenStore(), await givenStore()];
  const key = await givenKey();
  await replicated();
  await pair.replica.client.replicaof("NO", "ONE");
  await lagging.client.replicaof("NO", "ONE");
  const onBothSides = await stays.admitted(key);
  await stays.bind(onBothSides);
  await until(
    async () => (await stays.ids()).length > 0 && (await moves.ids()).length > 0,
    "the ids to be shown",
  );
  const [before] = await stays.ids();
  expect(await moves.ids()).toEqual([before]);

  moves.moveTo(pair.replica);
  await moves.connection.of(0).breaker.closed();
  await stays.logged("this primary was replaced: gateways use");
  expect(stays.isUsable()).toBe(false);
  expect(moves.isUsable()).toBe(true);
  await until(async () => (await stays.ids()).length === 0, "the id of the old one to be shown no more");
  await until(
    async () => !(await moves.ids()).includes(before!) && (await moves.ids()).length === 1,
    "the id of the new one",
  );

  stays.moveTo(pair.replica);
  await stays.connection.of(0).breaker.closed();
  expect(await stateAt(pair.replica, onBothSides)).toBe("bound");
  expect(await balanceAt(pair.replica, key)).toBe(CREDITS - PRICE);
  // Somebody removes the sign, and the address leads back to the old one.
  await pair.primary.client.hdel(termName(0), "left");
  stays.moveTo(pair.primary);
  await stays.logged("this primary is of an earlier time");
  expect(stays.isUsable()).toBe(false);
  // A node that started anew, while the other is gone, is the only one there is.
  await pair.replica.kill();
  await pair.primary.kill();
  await pair.primary.startAgain();
  await stays.connection.of(0).breaker.closed();
  expect(Number(await pair.primary.client.hget(termName(0), "term"))).toBe(3);
});

// Guarantee: one message that is lost does not leave two servers in use.
test("a primary before that does not answer is told as soon as it does", async () => {
  const { connection } = await givenStore();
  await replicated();
  await pair.replica.client.replicaof("NO", "ONE");
  const { terms, on } = termsOf(connection);
  await terms.requireLatest(on(pair.primary));
  const { client } = pair.primary;
  await client.config("SET", "requirepass", "not known to the gateway");
  const latest = on(pair.replica);
  await terms.requireLatest(latest);
  await until(async () => /errorstat_NOAUTH/.test(await client.info("errorstats")), "the first attempt");
  await client.config("SET", "requirepass", "");
  const left = () => client.hget(termName(0), "left");
  await until(async () => {
    expect(await terms.leaveReason(latest)).toBeUndefined();
    return (await left()) !== null;
  }, "it to be told");
  expect(await terms.leaveReason(on(pair.primary))).toContain("this primary was replaced");
});

test("of primaries before that do not answer the latest sixteen are tried again", async () => {
  const { connection } = await givenStore();
  const { client } = pair.primary;
  let dialled = 0;
  const silent = createServer((socket) => {
    dialled++;
    socket.destroy();
  }).listen(0, "127.0.0.1");
  await once(silent, "listening");
  try {
    const { terms, on } = termsOf(connection);
    const { port } = silent.address() as AddressInfo;
    const primary = on(pair.primary, { url: `redis://127.0.0.1:${port}` });
    await terms.requireLatest(primary);
    for (let promoted = 0; promoted < 18; promoted++) {
      await client.replicaof("127.0.0.1", 1);
      await client.replicaof("NO", "ONE");
      await terms.requireLatest(primary);
    }
    await until(() => dialled === 18, "each to be dialled");
    dialled = 0;
    // It dials where new connections lead as well, after all others.
    await terms.leaveReason(primary);
    expect(dialled).toBe(16 + 1);
  } finally {
    silent.close();
  }
});

test("a primary that new connections do not lead to is left, and the one that they lead to is not", async () => {
  const { connection } = await givenStore();
  await replicated();
  await pair.replica.client.replicaof("NO", "ONE");
  const termsAt = (redis: TestRedis, address: TestRedis) => {
    const { terms, on } = termsOf(connection);
    const primary = on(redis, address);
    return { leaveReason: () => terms.leaveReason(primary) };
  };
  const [old, latest] = [termsAt(pair.primary, pair.replica), termsAt(pair.replica, pair.primary)];
  expect(await termsAt(pair.primary, pair.primary).leaveReason()).toBeUndefined();
  const says = (pattern: RegExp) => async (): Promise<boolean> =>
    pattern.test((await old.leaveReason().catch(() => undefined)) ?? "");
  // An answer that is lost has put up the sign all the same.
  const found = /new connections lead to another primary|this primary was replaced/;
  await until(says(found), "the other primary to be found");
  expect(await latest.leaveReason()).toBeUndefined();
  await until(says(/this primary was replaced/), "the sign to be read");
});
