import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parseRedisAddress } from "../../src/domain/redis-address.ts";
import { createConnection } from "../../src/redis/connection.ts";
import { findPlacement } from "../../src/redis/topology/placement.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { createMetrics } from "../../src/telemetry/metrics.ts";
import { holdPort } from "../support/held-port.ts";
import { until } from "../support/until.ts";
import { waitFor } from "./node.ts";
import { createNodeSet, dataConfig } from "./nodes.ts";

/** One primary with a replica and a password, and one Sentinel with another password that watches them under three names. */
async function startWatched() {
  const set = await createNodeSet();
  const nowhere = await holdPort();
  const primary = await set.add("redis-1", dataConfig);
  const replica = await set.add("redis-2", (ports) => [
    ...dataConfig(ports),
    `replicaof 127.0.0.1 ${primary.announced}`,
  ]);
  const sentinel = await set.add(
    "sentinel-1",
    () => [
      `sentinel monitor served 127.0.0.1 ${primary.announced} 1`,
      `sentinel monitor demoted 127.0.0.1 ${replica.announced} 1`,
      `sentinel monitor elsewhere 127.0.0.1 ${nowhere.port} 1`,
    ],
    { isSentinel: true },
  );
  await Promise.all([primary.start(), replica.start()]);
  await waitFor(
    "the replica",
    30_000,
    async () => (await replica.info("replication"))?.master_link_status === "up",
  );
  await sentinel.start();
  // The rig's own clients stay logged in.
  await primary.client.call("CONFIG", "SET", "requirepass", "of-redis");
  await replica.client.call("CONFIG", "SET", "masterauth", "of-redis", "requirepass", "of-redis");
  await sentinel.client.call("ACL", "SETUSER", "default", "resetpass", ">of-others");
  const rights = ["get-master-addr-by-name", "master", "masters", "sentinels"].map(
    (one) => `+sentinel|${one}`,
  );
  await sentinel.client.call("ACL", "SETUSER", "gateway", "on", ">of-sentinel", "-@all", ...rights);
  return {
    ports: {
      sentinel: sentinel.announced,
      primary: primary.announced,
      replica: replica.announced,
      nowhere: nowhere.port,
    },
    primary,
    replica,
    async stop() {
      await set.stop();
      nowhere.release();
    },
  };
}

let watched: Awaited<ReturnType<typeof startWatched>>;
beforeAll(async () => {
  watched = await startWatched();
});
afterAll(() => watched.stop());

const LOGIN = "?sentinel_user=gateway&sentinel_password=of-sentinel";
const addressOf = (
  name: string,
  { query = LOGIN, hosts = `127.0.0.1:${watched.ports.sentinel}` } = {},
): string => `redis+sentinel://:of-redis@${hosts}/${name}${query}`;

const problemOf = (redisUrl: string): Promise<string> =>
  findPlacement(parseRedisAddress(redisUrl), { redisUrl }).then(
    ({ primaries }) => `found ${primaries.map(({ name }) => name).join()}`,
    (error: unknown) => (error as Error).message,
  );

test("the named primary is found with both passwords and the rights of the guide, also when a Sentinel is away", async () => {
  const { primary, nowhere, sentinel } = watched.ports;
  const hosts = `127.0.0.1:${nowhere},127.0.0.1:${sentinel}`;
  expect(await problemOf(addressOf("served", { hosts }))).toBe(`found 127.0.0.1:${primary}`);
});

describe("what cannot be used is said with what was asked, what came, and what to do", () => {
  test("a name that the Sentinels do not know, with those that they know", async () => {
    const problem = await problemOf(addressOf("mymaster"));
    expect(problem).toContain(
      `where the primary mymaster is: 127.0.0.1:${watched.ports.sentinel}: it does not know this name`,
    );
    for (const name of ["served", "demoted", "elsewhere"])
      expect(problem).toMatch(new RegExp(`watches .*${name}.*; end REDIS_URL with a name`));
  });

  test("Sentinels of which none answers, with the reason of each", async () => {
    const { nowhere, primary } = watched.ports;
    const problem = await problemOf(
      addressOf("served", { hosts: `127.0.0.1:${nowhere},127.0.0.1:${primary}`, query: "" }),
    );
    expect(problem).toContain(`127.0.0.1:${nowhere}: nothing listens at this address (ECONNREFUSED)`);
    expect(problem).toContain(`127.0.0.1:${primary}: it wants a password (NOAUTH)`);
  });

  test.each([
    ["a missing", "", "it wants a password (NOAUTH); give the user and the password of the Sentinels"],
    ["a wrong", "?sentinel_password=x", "it refuses the user or the password (WRONGPASS); give the user"],
  ])("%s password of a Sentinel", async (_, query, words) => {
    expect(await problemOf(addressOf("served", { query }))).toContain(words);
  });

  test("a wrong password of the primary", async () => {
    expect(await problemOf(addressOf("served").replace("of-redis", "x"))).toContain("(WRONGPASS)");
  });

  test("a server that is no Sentinel", async () => {
    const hosts = `127.0.0.1:${watched.ports.primary}`;
    const problem = await problemOf(addressOf("served", { hosts, query: "?sentinel_password=of-redis" }));
    expect(problem).toContain("it is no Sentinel, but a Redis server");
  });

  test.each<["demoted" | "elsewhere", RegExp]>([
    [
      "demoted",
      /was named as the primary, and says that it is a replica of .*; wait for the failover to end/,
    ],
    [
      "elsewhere",
      /was named as the primary, cannot be reached from here: .*\(ECONNREFUSED\).*replica-announce-ip/,
    ],
  ])("a primary that is %s", async (name, words) => {
    expect(await problemOf(addressOf(name))).toMatch(words);
  });
});

describe("a gateway", () => {
  /** The store as a gateway has it, and its log. */
  function givenConnection(redisUrl: string) {
    const logs: string[] = [];
    const connection = createConnection({
      redisUrl,
      commandTimeoutMs: 1000,
      partitions: 64,
      allowNoPersistence: true,
      log: createLogger("info", { write: (line) => void logs.push(line) }),
      metrics: createMetrics(),
    });
    return { connection, logs };
  }

  test("uses the database of the address on the primary that is named", async () => {
    const { connection } = givenConnection(addressOf("served", { query: `${LOGIN}&db=1` }));
    await connection.usable();
    expect(connection.isUsable()).toBe(true);
    await connection.close();
    expect(await watched.primary.client.call("INFO", "keyspace")).toMatch(/^db1:keys=\d/m);
  });

  test.each([
    ["a name that nobody knows", "mymaster", "it does not know this name"],
    [
      "a replica",
      "demoted",
      "was named as the primary, and is a read-only replica (READONLY); wait for the failover",
    ],
    ["a primary out of reach", "elsewhere", "replica-announce-ip"],
  ])("logs why it cannot use %s, and uses nothing", async (_, name, words) => {
    const { connection, logs } = givenConnection(addressOf(name));
    await until(() => logs.some((line) => line.includes(words)), "the reason in the log");
    expect(connection.isUsable()).toBe(false);
    expect(() => connection.requireUsable()).toThrow(/store/);
    await connection.close();
  });

  test("does not use a replica that takes writes", async () => {
    await watched.replica.client.call("CONFIG", "SET", "replica-read-only", "no");
    const { connection, logs } = givenConnection(addressOf("demoted"));
    const says = "was named as the primary, and says that it is a replica of";
    await until(() => logs.some((line) => line.includes(says)), "the reason in the log");
    expect(connection.isUsable()).toBe(false);
    await connection.close();
  });
});
