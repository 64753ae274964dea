import { mkdtempSync, readdirSync, readFileSync, rmSync, utimesSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { openJournal } from "../../src/durability/outbox/journal.ts";
import { requestName } from "../../src/records/names.ts";
import * as connections from "../../src/redis/connection.ts";
import type { Generation } from "../../src/scripts/holds.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { createMetrics } from "../../src/telemetry/metrics.ts";
import { copySources, type Patch } from "../fault/tree.ts";
import { givenGateway } from "../support/gateway.ts";
import { createStage, newTask, onOneServer, openStore, TIERS, taskOf, times } from "../support/store.ts";
import { generate, givenKey, givenPair, type Pair, ready, readyz } from "../support/store-stage.ts";
import { readRequest } from "../support/stored-requests.ts";
import { until } from "../support/until.ts";

const log = createLogger("silent");
const ROOT = join(import.meta.dirname, "../..");
/** Long beside a round on a busy machine. */
const CONFIRM_TIMEOUT_MS = 400;
const RETENTION_MS = 3_600_000;

let pair: Pair;
let folder: string;
let opened: { close(): Promise<void> }[];
beforeEach(async () => {
  pair = await givenPair();
  folder = mkdtempSync(join(tmpdir(), "tollgate-replicas-"));
  opened = [];
});
afterEach(async () => {
  pair.replica.resume();
  await Promise.all(opened.map((one) => one.close()));
  await pair.stop();
  rmSync(folder, { recursive: true });
});

/** The store as a gateway has it, with confirmation by one replica. */
async function givenStore(
  redisUrl: string,
  { create = connections.createConnection, timeoutMs = CONFIRM_TIMEOUT_MS } = {},
) {
  const metrics = createMetrics();
  const journal = await openJournal(folder, log);
  const options = { redisUrl, commandTimeoutMs: 10_000, partitions: 64, allowNoPersistence: true };
  const connection = create({ ...options, confirm: { replicas: 1, timeoutMs }, log, metrics });
  const store = openStore(connection, { journal, log });
  await connection.usable();
  const primary = connection.of(0);
  let closed: Promise<void> | undefined;
  const close = (): Promise<void> => {
    closed ??= connection.close().then(store.settlements.close);
    return closed;
  };
  opened.push({ close });
  const stage = createStage(onOneServer(connection), { clock: "redis" });
  const key = await stage.givenKey({ credits: 1000 });
  return {
    store,
    primary,
    confirmation: primary.confirmation!,
    metrics,
    close,
    /** A generation that is admitted and not charged yet. */
    async admitted(): Promise<Generation> {
      const generation = stage.request(key, { retentionMs: RETENTION_MS });
      expect((await store.admit(generation, TIERS)).outcome).toBe("admitted");
      return generation;
    },
    bind: (generation: Generation) => store.bind(generation, newTask(taskOf(generation))),
  };
}

type TestStore = Awaited<ReturnType<typeof givenStore>>;

/** The lines of the journal, oldest first. */
const journaled = (): { acknowledged?: boolean; call: { requestId: string } }[] =>
  readdirSync(folder)
    .filter((name) => name.endsWith(".ndjson"))
    .flatMap((name) => readFileSync(join(folder, name), "utf8").split("\n"))
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line));

const journaledIds = (): string[] => journaled().map(({ call }) => call.requestId);

async function unconfirmed({ metrics }: TestStore): Promise<number | undefined> {
  return (await metrics.unconfirmed.get()).values[0]?.value;
}

/** The first round also connects; after it the second connection is there. */
const connected = ({ confirmation }: Pick<TestStore, "confirmation">): Promise<void> =>
  until(async () => (await confirmation.confirmed()) === "replicas", "a confirmed round");

const stateAt = async ({ client }: Pair["primary"], { key, requestId }: Generation): Promise<string | null> =>
  (await readRequest(client, requestName(key.partition, requestId))).state ?? null;

// Guarantee: an acknowledged charge is on two Redis machines.
test("a charge is answered once the replica has it, and leaves nothing in the journal", async () => {
  const gateway = await givenStore(pair.primary.url);
  await connected(gateway);
  const generations = await Promise.all(times(20, gateway.admitted));
  for (const generation of generations.slice(0, 10)) {
    expect(await gateway.bind(generation)).toBe("bound");
    expect(await stateAt(pair.replica, generation)).toBe("bound");
  }
  await Promise.all(generations.slice(10).map(gateway.bind));
  expect(journaled()).toEqual([]);
  expect(await unconfirmed(gateway)).toBe(0);
});

// Guarantee: or on one and on a gateway's disk; and a replica that is away is no outage.
test("while the replica hangs, a charge is in the journal before it is answered, and owes nothing", async () => {
  const gateway = await givenStore(pair.primary.url);
  await connected(gateway);
  const [first, second] = [await gateway.admitted(), await gateway.admitted()];
  pair.replica.pause();
  for (const generation of [first, second]) {
    expect(await gateway.bind(generation)).toBe("bound");
    expect(journaledIds()).toContain(generation.requestId);
  }
  expect(journaled().map(({ acknowledged }) => acknowledged)).toEqual([true, true]);
  expect(await unconfirmed(gateway)).toBe(2);
  expect(gateway.store.settlements.outbox.size()).toBe(0);
  expect(gateway.primary.breaker.isOpen).toBe(false);

  pair.replica.resume();
  await until(async () => (await unconfirmed(gateway)) === 0, "the replica to have caught up");
  await until(() => journaled().length === 0, "the journal to be empty");
  expect(await stateAt(pair.replica, first)).toBe("bound");
});

// Guarantee: replicas that are away cost each request one round at most.
test("requests that come during a round that fails do not wait for another one", async () => {
  const gateway = await givenStore(pair.primary.url, { timeoutMs: 3000 });
  await connected(gateway);
  const generations = await Promise.all(times(6, gateway.admitted));
  pair.replica.pause();
  const before = await waits(gateway);
  const first = gateway.bind(generations[0]!);
  await until(async () => (await waits(gateway)) > before, "the first round to be under way");
  await Promise.all([first, ...generations.slice(1).map(gateway.bind)]);
  expect((await waits(gateway)) - before).toBe(1);
  expect(new Set(journaledIds())).toEqual(new Set(generations.map(({ requestId }) => requestId)));
});

/** How many WAITs have been answered or are under way. */
async function waits({ primary: { redis } }: TestStore): Promise<number> {
  const figure = (text: string, name: string): number =>
    Number(new RegExp(`^${name}(\\d+)`, "m").exec(text)?.[1] ?? 0);
  const [calls, clients] = await Promise.all([redis.info("commandstats"), redis.info("clients")]);
  return figure(calls, "cmdstat_wait:calls=") + figure(clients, "blocked_clients:");
}

// Guarantee: a primary that dies while its replica lags loses no charge that a customer knows of.
test("a gateway that ended leaves the charges that the replica lacked, and the next makes them before it serves", async () => {
  const gateway = await givenStore(pair.primary.url);
  await connected(gateway);
  const confirmed = await gateway.admitted();
  await gateway.bind(confirmed);
  const answered = await Promise.all(times(3, gateway.admitted));
  // The holds are there, and the charges are not: the worst that a cut link can do.
  await connected(gateway);
  await pair.replica.client.replicaof("NO", "ONE");
  for (const generation of answered) expect(await gateway.bind(generation)).toBe("bound");
  await gateway.close();
  await pair.primary.kill();
  for (const generation of answered) expect(await stateAt(pair.replica, generation)).toBe("held");

  const [file = ""] = readdirSync(folder);
  const silentSince = Date.now() / 1000 - 60;
  utimesSync(join(folder, file), silentSince, silentSince);
  const next = await givenStore(pair.replica.url);
  for (const generation of [confirmed, ...answered])
    expect(await stateAt(pair.replica, generation)).toBe("bound");
  expect(next.store.settlements.outbox.size()).toBe(0);
  // The promoted one has no replica itself.
  expect(await unconfirmed(next)).toBe(3);
});

// Guarantee: a round on another run of the primary says nothing of what this one has answered.
test("what a primary has answered before it started anew is sent again before a round confirms it", async () => {
  const gateway = await givenStore(pair.primary.url);
  await connected(gateway);
  const generation = await gateway.admitted();
  pair.replica.pause();
  expect(await gateway.bind(generation)).toBe("bound");
  expect(await unconfirmed(gateway)).toBe(1);
  const run = vi.spyOn(gateway.primary.direct, "run");
  await pair.primary.kill();
  await until(() => gateway.primary.breaker.isOpen, "the outage to be noticed");
  await pair.primary.startAgain();
  await gateway.primary.breaker.closed();
  const sent = run.mock.calls.filter(([{ name }]) => name === "bind");
  expect(sent.map(([, call]) => call)).toMatchObject([{ requestId: generation.requestId }]);
  expect(await unconfirmed(gateway)).toBe(1);
  expect(journaledIds()).toContain(generation.requestId);
  pair.replica.resume();
  await until(async () => (await unconfirmed(gateway)) === 0, "the replica to have caught up");
  expect(await stateAt(pair.replica, generation)).toBe("bound");
});

// Guarantee: a partition that is frozen while its primary changes loses no charge that replicas had confirmed.
test("an answered charge of a partition that is frozen during a failover is made again once it is thawed", async () => {
  let isFrozen = false;
  let released = (): void => undefined;
  const create: typeof connections.createConnection = (options) => {
    const connection = connections.createConnection(options);
    return {
      ...connection,
      isFrozen: () => isFrozen,
      attach(hooks) {
        ({ released } = hooks);
        connection.attach(hooks);
      },
    };
  };
  const gateway = await givenStore(pair.primary.url, { create });
  await connected(gateway);
  const generation = await gateway.admitted();
  const { client } = pair.primary;
  const names = await client.keys("tg:{p*");
  const before = await Promise.all(names.map((name) => client.dumpBuffer(name)));
  expect(await gateway.bind(generation)).toBe("bound");
  expect(journaledIds()).toEqual([]);
  // As a replica that lacks the charge and takes over.
  isFrozen = true;
  await client.del(...(await client.keys("tg:{p*")));
  for (const [at, name] of names.entries()) await client.restore(name, 0, before[at]!);
  await pair.primary.kill();
  await until(() => gateway.primary.breaker.isOpen, "the outage to be noticed");
  await pair.primary.startAgain();
  await gateway.primary.breaker.closed();
  expect(await stateAt(pair.primary, generation)).toBe("held");
  isFrozen = false;
  released();
  await until(
    async () => (await stateAt(pair.primary, generation)) === "bound",
    "the charge to be made again",
  );
});

test("a gateway with store.confirm_replicas answers a customer from the journal while the replica hangs", async () => {
  const store = { journal: folder, confirm: { replicas: 1, timeoutMs: CONFIRM_TIMEOUT_MS } } as const;
  const gateway = await givenGateway({ redisUrl: pair.primary.url, config: { store } });
  opened.push({ close: gateway.stop });
  await ready(gateway);
  const key = await givenKey(pair.primary.client);
  const keptIn = (where: string) => gateway.metric(`tollgate_store_confirmations_total{kept_in="${where}"} `);
  await until(async () => {
    expect((await generate(gateway, key)).status).toBe(200);
    return (await keptIn("replicas"))[0]?.endsWith(" 1") === true;
  }, "an answer that the replica has");
  pair.replica.pause();
  const { body, status } = await generate(gateway, key);
  expect(status).toBe(200);
  expect(journaled().map(({ call }) => call)).toContainEqual(
    expect.objectContaining({ task: expect.objectContaining({ taskId: body.data.task_id }) }),
  );
  expect(await readyz(gateway)).toBe(200);
});

describe("mutants of a round are caught", () => {
  const mutants: [name: string, patches: Omit<Patch, "file">[]][] = [
    ["it does not wait", [{ from: ".wait(replicas, timeoutMs)", to: ".exists(mark)" }]],
    [
      // From Redis 7.2 on, any other command in the place of the mark is as wrong; 7.0 counts each command.
      "it writes no mark",
      [
        { from: ".eval(MARK, 1, mark, MARK_MS)", to: "" },
        { from: "const [marked, waited] = replies", to: "const [waited, marked] = replies" },
      ],
    ],
  ];
  test.each(mutants)("%s", async (_, patches) => {
    const file = "src/redis/confirmation.ts";
    const copy = copySources(
      ROOT,
      join(folder, "mutant"),
      patches.map((patch) => ({ file, ...patch })),
    );
    const changed = pathToFileURL(join(copy, "src/redis/connection.ts")).href;
    const mutant = (await import(changed)) as typeof connections;
    const gateway = await givenStore(pair.primary.url, { create: mutant.createConnection });
    await connected(gateway);
    const generation = await gateway.admitted();
    // Before 7.2 WAIT counts up to the connection's last command, which the replica need not have acknowledged yet.
    expect(await pair.primary.client.wait(1, 10_000)).toBe(1);
    pair.replica.pause();
    await gateway.admitted();
    expect(await gateway.bind(generation)).toBe("bound");
    expect(journaledIds()).not.toContain(generation.requestId);
    expect(await unconfirmed(gateway)).toBe(0);
  });
});
