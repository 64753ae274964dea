import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Check } from "../../src/checks/check.ts";
import { runHere } from "../support/cli.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { type RedisNode, waitFor } from "./node.ts";
import { startTrio, type Trio } from "./trio.ts";

let trio: Trio;
let cluster: Cluster;
beforeAll(async () => {
  [trio, cluster] = await Promise.all([startTrio({ quickReturn: true }), startCluster()]);
}, 120_000);
afterAll(async () => {
  await Promise.all([trio?.stop(), cluster?.stop()]);
});

async function doctor(redisUrl: string): Promise<Check[]> {
  const { stdout } = await runHere(["doctor", "--json"], { REDIS_URL: redisUrl });
  return JSON.parse(stdout).checks;
}

/** Doctor's report on the servers; their limits and speed depend on this machine. */
const SERVERS = [
  "redis",
  "primary",
  "replica",
  "replicas",
  "sentinels",
  "cluster",
  "min-replicas",
  "priority",
];
const NODES = [...SERVERS, "clocks", "eviction", "persistence", "settings", "partitions", "scripts"];
const found = (checks: readonly Check[], names = NODES): string[] =>
  checks
    .filter(({ name }) => names.includes(name))
    .map(({ name, status, message }) => `${status} ${name}: ${message}`);
const wrong = (checks: readonly Check[]): string[] => found(checks).filter((line) => !line.startsWith("ok"));

/** The rights of docs/operations/redis.md, on every node. */
const RIGHTS =
  "resetchannels ~tg:* -@all +@read +@write +@scripting +@transaction +@connection -@dangerous +info +time +wait +bgrewriteaof +cluster|slots +cluster|nodes +cluster|keyslot";
const withUser = (redisUrl: string): string => redisUrl.replace("://", "://tollgate:secret@");

async function addUser(nodes: readonly RedisNode[]): Promise<void> {
  for (const { client } of nodes)
    await client.call("ACL", "SETUSER", "tollgate", "on", ">secret", ...RIGHTS.split(" "));
}

/** Commands that the user was refused. */
async function refused(nodes: readonly RedisNode[]): Promise<Set<unknown>> {
  const logs = await Promise.all(nodes.map(({ client }) => client.call("ACL", "LOG")));
  return new Set((logs.flat() as unknown[][]).map((line) => line[line.indexOf("object") + 1]));
}

/** Runs something while a setting of a node is another one. */
async function withSetting(
  nodes: readonly RedisNode[],
  name: string,
  value: string,
  work: () => Promise<void>,
) {
  const before = await nodes[0]!.client.config("GET", name);
  await Promise.all(nodes.map(({ client }) => client.config("SET", name, value)));
  await work();
  await Promise.all(nodes.map(({ client }) => client.config("SET", name, (before as string[])[1]!)));
}

describe("doctor looks at a primary with replicas and Sentinels", () => {
  const others = async () => {
    const primary = await trio.healthy();
    return trio.nodes.filter((node) => node !== primary);
  };

  // On a busy machine a node that stands still for two seconds would have lost its replicas.
  beforeAll(async () => {
    for (const { client } of trio.nodes)
      await client.call("CONFIG", "SET", "repl-timeout", 60, "min-replicas-max-lag", 60);
  });

  test("says that all are in order, with the rights of the guide, and what it may not look at", async () => {
    await addUser(trio.nodes);
    let replicas: RedisNode[] = [];
    let checks: Check[] = [];
    await trio.withoutFailover(async () => {
      replicas = await others();
      checks = await doctor(withUser(trio.redisUrl));
    });
    expect(wrong(checks)).toEqual([]);
    const lines = found(checks);
    for (const { announced } of replicas)
      expect(lines).toContainEqual(
        expect.stringMatching(`^ok replica: 127.0.0.1:${announced} .* of 127.0.0.1:`),
      );
    expect(lines).toContainEqual(
      expect.stringMatching(/^ok sentinels: 3 of 3 answer and name .*; the quorum is 2$/),
    );
    expect(lines).toContainEqual(expect.stringMatching(/^ok clocks: of 3 servers, /));
    expect(lines).toContainEqual(expect.stringMatching(/^ok settings: CONFIG GET is not allowed at /));
    expect(await refused(trio.nodes)).toEqual(new Set(["config|get"]));
  });

  test("names a replica that may evict, and replicas that are never promoted", async () => {
    const [first] = await others();
    await withSetting([first!], "maxmemory-policy", "allkeys-lru", async () => {
      expect(wrong(await doctor(trio.redisUrl))).toEqual([
        `fail eviction: 127.0.0.1:${first!.announced}, replica: maxmemory-policy is allkeys-lru, which may evict money and limits`,
      ]);
    });
    await withSetting(await others(), "replica-priority", "0", async () => {
      expect(wrong(await doctor(trio.redisUrl))).toEqual([
        expect.stringMatching(/^fail priority: .*: Sentinel promotes none of the replicas$/),
      ]);
    });
  });

  test("says that a name is wrong once, and which Sentinels are away", async () => {
    await others();
    expect(wrong(await doctor(trio.redisUrl.replace(/[^/]*$/, "mymaster")))).toEqual([
      expect.stringMatching(/^fail redis: .*it does not know this name, and watches tollgate/),
    ]);
    const away = trio.sentinels[2]!;
    await away.kill();
    expect(wrong(await doctor(trio.redisUrl))).toEqual([
      expect.stringMatching(`^warn sentinels: 127.0.0.1:${away.announced} does not say where the primary is`),
    ]);
    await away.start();
  });

  test("says that a replica is away", async () => {
    const [first] = await others();
    await first!.kill();
    await waitFor(
      "the primary to notice it",
      30_000,
      async () => (await (await trio.primary())?.info("replication"))?.connected_slaves === "1",
    );
    expect(wrong(await doctor(trio.redisUrl))).toContainEqual(
      "warn sentinels: they know 2 replicas, and 1 are connected to the primary",
    );
    await first!.start();
  });
});

describe("doctor looks at a cluster", () => {
  test("says that all six are in order, with the rights of the guide", async () => {
    await addUser(cluster.nodes);
    let checks: Check[] = [];
    // On a busy machine a node that stands still for a second would be away in the eyes of the others.
    await cluster.withoutFailover(async () => {
      await cluster.healthy();
      checks = await doctor(withUser(cluster.redisUrl));
    });
    expect(wrong(checks)).toEqual([]);
    expect(found(checks, ["primary"])).toHaveLength(3);
    expect(found(checks, ["replica"])).toHaveLength(3);
    expect(found(checks, ["cluster"])).toEqual([
      "ok cluster: 6 nodes; all 16384 slots have a primary, and each primary a replica",
    ]);
    expect(await refused(cluster.nodes)).toEqual(new Set(["config|get"]));
  });

  test("names the slots and partitions that nobody serves, the nodes that are away, and what evicts", async () => {
    const primary = (await cluster.primaryOf(5))!;
    const replica = (await cluster.replicaOf(primary))!;
    const evicting = (await cluster.replicaOf((await cluster.primaryOf(6))!))!;
    await evicting.client.config("SET", "maxmemory-policy", "volatile-lru");
    await replica.kill();
    await primary.kill();
    const rest = cluster.nodes.filter((node) => node !== primary && node !== replica);
    await waitFor("the other nodes to agree that both are away", 30_000, async () => {
      const views = await Promise.all(rest.map((node) => node.ask("CLUSTER", "NODES")));
      return views.every((view) => String(view).match(/(slave|master),fail /g)?.length === 2);
    });
    const lines = wrong(await doctor(cluster.redisUrl));
    expect(lines).toContainEqual(
      expect.stringMatching(/^fail cluster: \d+ of 16384 slots have no primary, .*\b5, /),
    );
    expect(lines).toContainEqual(
      expect.stringMatching(`^fail primary: 127.0.0.1:${primary.announced}: is unavailable: `),
    );
    for (const { announced } of [primary, replica])
      expect(lines).toContainEqual(
        expect.stringMatching(`^warn cluster: 127.0.0.1:${announced}, a .* is unavailable`),
      );
    expect(lines).toContainEqual(
      expect.stringMatching(
        `^fail eviction: 127.0.0.1:${evicting.announced}, replica: maxmemory-policy is volatile-lru`,
      ),
    );
  });
});
