import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Redis } from "ioredis";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import type { ApiCall } from "../../src/admin/api/route.ts";
import { ROUTES } from "../../src/admin/api/routes.ts";
import { replyOf } from "../../src/admin/api/serve.ts";
import type { Services } from "../../src/admin/api/services.ts";
import { list } from "../../src/commands/keys-list.ts";
import { print } from "../../src/commands/output.ts";
import { SCOPES } from "../../src/domain/scopes.ts";
import { LastConfirmedFile } from "../../src/durability/losses/last-confirmed.ts";
import { exportLedger, type LedgerCursor } from "../../src/ledger/export.ts";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { grantCredits } from "../../src/operations/credits/grants.ts";
import { type IssuedKey, issueKey } from "../../src/operations/keys/issue-key.ts";
import { eachKey, findKey, type KeyRecord } from "../../src/operations/keys/keys.ts";
import { acceptStore, findWritable, knownLoss, listLoss } from "../../src/operations/store/operator-loss.ts";
import { countOpen } from "../../src/operations/store/operator-views.ts";
import { findTask } from "../../src/operations/tasks/operator-tasks.ts";
import { cliActor } from "../../src/records/actor.ts";
import { LEDGER_START, readLedger } from "../../src/records/ledger-entries.ts";
import { accountNames, META, partitionNames, partitionOf } from "../../src/records/names.ts";
import { readsOfMost, UnreadError } from "../../src/redis/partition-reads.ts";
import { oneNode, type RedisNodes, storedFacts } from "../../src/redis/store-facts.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { addMoney } from "../support/account-money.ts";
import { TIERS, times } from "../support/store.ts";
import { startTwoNodes, type TwoNodes } from "../support/two-nodes.ts";

// Two servers, of which one is away: what it holds is not known, and is called neither right nor wrong, lost nor absent.

const ACCOUNTS = 8;
const PARTITIONS = 64;

let dir: string;
let two: TwoNodes;
let nodes: RedisNodes;
/** The server that goes away; `tg:meta` is on the other one. */
let away: Redis;
let keys: IssuedKey[];
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "tollgate-away-"));
  two = await startTwoNodes(dir);
  nodes = two.nodes;
  away = nodes.all().find((redis) => redis !== nodes.ofName(META))!;
  keys = [];
  for (let at = 0; at < ACCOUNTS; at++) {
    keys.push(await issueKey(nodes, { accountId: `acc_${at}`, credits: 100 }, cliActor()));
  }
  expect(keys.filter(isThere).length).toBeGreaterThan(0);
  expect(keys.filter(isThere).length).toBeLessThan(ACCOUNTS);
});
afterAll(async () => {
  await two?.stop();
  await rm(dir, { recursive: true, force: true });
});
beforeEach(() => leave(away));
afterEach(() => comeBack(away));

/** To the one who asks, a server is away whose connection has ended and is not made anew. */
async function leave(redis: Redis): Promise<void> {
  const ended = once(redis, "end");
  redis.disconnect();
  await ended;
}

async function comeBack(redis: Redis): Promise<void> {
  if (redis.status !== "ready") await redis.connect();
}

const partitionOfKey = ({ accountId }: { accountId: string }): number => partitionOf(accountId, PARTITIONS);
const isThere = (key: { accountId: string }): boolean => nodes.of(partitionOfKey(key)) !== away;
const awayPartitions = (): number[] => times(PARTITIONS, (at) => at).filter((at) => nodes.of(at) === away);
const unread = () => ({
  partitions: awayPartitions(),
  why: expect.stringContaining(String(away.options.port)),
});

test("verify compares what it can read, finds what is wrong there, and calls the rest neither right nor wrong", async () => {
  const there = keys.filter(isThere);
  expect(await verifyLedger(nodes)).toMatchObject({
    ok: false,
    violations: [],
    accounts: there.length,
    credits: { recharged: 100 * there.length },
    unread: unread(),
  });
  const [{ accountId }] = there as [IssuedKey];
  const partition = partitionOfKey({ accountId });
  const { account } = accountNames(partition, accountId);
  await addMoney(nodes.of(partition), account, "balance", 1);
  expect(await verifyLedger(nodes)).toMatchObject({
    violations: [{ invariant: "balance" }],
    unread: unread(),
  });
  await addMoney(nodes.of(partition), account, "balance", -1);
  // Of an account whose server answers everything is known.
  const ofOne = await verifyLedger(nodes, { accountIds: [accountId] });
  expect(ofOne).toMatchObject({ ok: true, accounts: 1 });
  expect(ofOne.unread).toBeUndefined();
});

test("a server that goes away in the middle of a check is said, and nothing of it is called wrong", async () => {
  await comeBack(away);
  const result = await verifyLedger(nodes, {
    seen({ done }) {
      if (done === PARTITIONS / 2) away.disconnect();
    },
  });
  const later = awayPartitions().filter((partition) => partition >= PARTITIONS / 2);
  expect(result).toMatchObject({ ok: false, violations: [] });
  expect(result.unread?.partitions).toEqual(expect.arrayContaining(later));
});

test("an export goes on without a server, and has each entry once when that is back", async () => {
  const cursor: LedgerCursor = new Map();
  const accounts: string[] = [];
  const exportOn = async () => {
    const reads = readsOfMost(nodes);
    for await (const { entries } of exportLedger(nodes, cursor, {}, reads)) {
      accounts.push(...entries.map(({ accountId }) => accountId));
    }
    return reads.unread();
  };
  expect(await exportOn()).toEqual(unread());
  expect(accounts.toSorted()).toEqual(keys.filter(isThere).map(({ accountId }) => accountId));
  expect([...cursor.keys()].some((partition) => nodes.of(partition) === away)).toBe(false);
  await comeBack(away);
  expect(await exportOn()).toBeUndefined();
  expect(accounts.toSorted()).toEqual(keys.map(({ accountId }) => accountId));
  // The cursor knows partitions that cannot be read now: they may not be taken for those of another store.
  await leave(away);
  expect(await exportOn()).toEqual(unread());
  expect(accounts).toHaveLength(ACCOUNTS);
});

test("a list of keys says which partitions it lacks, as text, as JSON and by its exit code", async () => {
  const reads = readsOfMost(nodes);
  const found: KeyRecord[] = [];
  for await (const key of eachKey(nodes, undefined, reads)) found.push(key);
  expect(found.map(({ accountId }) => accountId).sort()).toEqual(
    keys.filter(isThere).map(({ accountId }) => accountId),
  );
  expect(reads.unread()).toEqual(unread());
  await expect(Array.fromAsync(eachKey(nodes))).rejects.toThrow();

  const json = await written(() => list(nodes, { json: true }));
  expect(JSON.parse(json.stdout)).toMatchObject({ keys: { length: found.length }, unread: unread() });
  expect(json).toMatchObject({ code: 2, stderr: expect.stringContaining("partitions could not be read") });
  const text = await written(() => list(nodes, {}));
  expect(text).toMatchObject({ code: 2, stderr: expect.stringContaining("partitions could not be read") });
});

test("an answer that is wrong and not whole has the exit code of what is wrong", async () => {
  const answer = { json: {}, text: "", unread: { partitions: [3], why: "away" } };
  expect(await written(async () => print(answer, {}))).toMatchObject({
    code: 2,
    stderr: "1 partition could not be read (away): 3. Run it again when all servers answer.\n",
  });
  expect(await written(async () => print({ ...answer, ok: false }, {}))).toMatchObject({ code: 1 });
  expect(await written(async () => print({ ...answer, ok: false, unread: undefined }, {}))).toMatchObject({
    code: 1,
    stderr: "",
  });
});

test("a key or request that is not found may be where nothing could be read", async () => {
  for (const key of keys) {
    const found = findKey(nodes, key.keyId);
    if (isThere(key)) expect(await found).toMatchObject({ accountId: key.accountId });
    else await expect(found).rejects.toThrow(UnreadError);
  }
  await expect(findTask(nodes, "req_unknown")).rejects.toThrow(UnreadError);
  await comeBack(away);
  await expect(findKey(nodes, "key_unknown")).rejects.toMatchObject({ code: "not_found" });
  await expect(findTask(nodes, "req_unknown")).rejects.toThrow("no task or request");
});

test("the console shows what it can read and says which partitions it lacks", async () => {
  const session = { run: <T>(work: (all: RedisNodes) => Promise<T>) => work(nodes) };
  const services = { session, config: () => ({ tiers: TIERS }), lookUps: {} } as unknown as Services;
  const grantee = { accounts: undefined, scopes: SCOPES };
  const read = async (name: string, query: object = {}): Promise<object> => {
    const route = ROUTES.find((one) => one.name === name)!;
    return (await route.run({ params: {}, query, grantee } as unknown as ApiCall, services)).body;
  };
  const [there, lacks] = [keys.find(isThere)!, keys.find((key) => !isThere(key))!];
  expect(await read("listTopKeys")).toMatchObject({
    keys_looked_at: keys.filter(isThere).length,
    unread: unread(),
  });
  expect(await read("listOpenRequests")).toMatchObject({ open: 0, unread: unread() });
  expect(await read("search", { q: there.keyId })).toMatchObject({
    data: [{ kind: "key", account_id: there.accountId }],
    complete: false,
  });
  await expect(read("search", { q: lacks.keyId })).rejects.toThrow("partitions could not be read");
  // A count that says nothing of what it lacks is not given.
  await expect(countOpen(nodes, PARTITIONS)).rejects.toThrow();
});

// Guarantee: nobody takes sums of some accounts for those of all.
test("totals of a month are of what can be read and say so, and no table is made of them", async () => {
  const session = { run: <T>(work: (all: RedisNodes) => Promise<T>) => work(nodes) };
  const services = { session } as unknown as Services;
  const grantee = { accounts: undefined, scopes: [] };
  const answerOf = (name: string) => {
    const route = ROUTES.find((one) => one.name === name)!;
    const query = route.name === "readAllUsage" ? {} : { month: "2026-10" };
    return route.run({ params: {}, query, grantee } as unknown as ApiCall, services);
  };
  const inCsv = { headers: { accept: "text/csv" } };
  for (const name of ["listSales", "listStatements"]) {
    const answer = await answerOf(name);
    expect(answer.body).toMatchObject({ unread: unread() });
    expect(() => replyOf(answer, inCsv)).toThrow("partitions could not be read");
    await comeBack(away);
    const whole = await answerOf(name);
    expect(replyOf(whole, inCsv).body).toContain("month,");
    await leave(away);
  }
  expect((await answerOf("readTotalStatement")).body).toMatchObject({ closing: null, unread: unread() });
  expect((await answerOf("readAllUsage")).body).toMatchObject({ unread: unread() });
});

test("a grant does not wait for a server that it does not write to, and no loss is accepted unseen", async () => {
  await comeBack(away);
  const { id = "" } = await storedFacts(nodes);
  const folder = join(dir, "marks");
  const marks = new LastConfirmedFile(folder, createLogger("silent"));
  for (const key of keys) {
    const partition = partitionOfKey(key);
    const [entry] = await readLedger(nodes.of(partition), partition, LEDGER_START);
    const confirmed = {
      id: entry!.streamId,
      accountId: key.accountId,
      kind: "grant",
      credits: 100,
      reference: "",
    };
    // Entries that the server that goes away has confirmed are lost.
    const ledger = partitionNames(partition).ledger;
    marks.keep(id, ledger, isThere(key) ? confirmed : { ...confirmed, id: "99999999999999-0" });
  }
  await marks.save();
  expect((await knownLoss(nodes, folder))?.missing.length).toBeGreaterThan(0);

  await leave(away);
  const writable = await findWritable(nodes, folder);
  const [{ accountId }] = keys.filter(isThere) as [IssuedKey];
  const granted = grantCredits({ ...nodes, ...writable }, accountId, 5, "while one is away", cliActor());
  expect(await granted).toMatchObject({ balance: 105 });
  const reads = readsOfMost(nodes);
  expect(await listLoss(nodes, folder, () => [], reads)).toBeUndefined();
  expect(reads.unread()).toMatchObject({
    partitions: expect.arrayContaining([partitionOfKey(keys.find((key) => !isThere(key))!)]),
  });
  await expect(acceptStore(nodes, folder, [])).rejects.toThrow("nothing is accepted");
});

test("of a store on one server an error stays an error", async () => {
  const alone = oneNode(nodes.ofName(META));
  await leave(nodes.ofName(META));
  try {
    await expect(verifyLedger(alone)).rejects.toThrow();
    await expect(findKey(alone, "key_1")).rejects.not.toThrow(UnreadError);
  } finally {
    await comeBack(nodes.ofName(META));
  }
  // It has `tg:meta`, and of the partitions some: the others are an error of the cluster.
  await expect(verifyLedger(alone)).rejects.toThrow("CLUSTERDOWN");
});

/** Output of some work of a command, and its exit code. */
async function written(
  work: () => Promise<void>,
): Promise<{ stdout: string; stderr: string; code: unknown }> {
  const text = { stdout: "", stderr: "" };
  const streams = ["stdout", "stderr"] as const;
  const before = streams.map((name) => process[name].write);
  for (const name of streams) {
    process[name].write = ((part: string) => {
      text[name] += part;
      return true;
    }) as typeof process.stdout.write;
  }
  process.exitCode = 0;
  try {
    await work();
    return { ...text, code: process.exitCode };
  } finally {
    process.exitCode = 0;
    for (const [at, name] of streams.entries()) process[name].write = before[at]!;
  }
}
