import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { runProcess } from "../support/cli.ts";
import { type ShippedRedis, startShippedRedis } from "../support/deployment/shipped-redis.ts";
import { send, until } from "../support/gateway.ts";
import { startGenerator } from "../support/generator.ts";
import { startGatewayProcess } from "../support/processes.ts";
import { givenKey, givenRedis, TEXT_TO_VIDEO } from "../support/store-stage.ts";

const cleanups: (() => Promise<unknown>)[] = [];
afterAll(async () => {
  for (const cleanup of cleanups.reverse()) await cleanup();
}, 60_000);

/** The files of deploy/redis with a gateway, which get nothing but what the operations guide says. */
async function givenDeployment(kind: "sentinel" | "cluster") {
  const redis = await startShippedRedis(kind);
  cleanups.push(redis.stop);
  const generator = await startGenerator();
  cleanups.push(() => generator.stop());
  const env = { ...redis.env, UPSTREAM_URL: generator.url, UPSTREAM_API_KEY: "upstream-secret" };
  const tollgate = async (...words: string[]) => {
    const { code, stdout, stderr } = await runProcess([...words, "--json"], env);
    return { code, stderr, answer: stdout === "" ? undefined : JSON.parse(stdout) };
  };
  const gateway = await startGatewayProcess({ redisUrl: env.REDIS_URL, upstreamUrl: generator.url, env });
  cleanups.push(gateway.stop);
  const issued = await Promise.all(
    Array.from(
      { length: 12 },
      async () => (await tollgate("keys", "create", "--credits", "1000", "--max-concurrent", "100")).answer,
    ),
  );
  return { redis, gateway, tollgate, keys: issued.map(({ key }) => key as string) };
}

const generate = (url: string, key: string) =>
  send(url, "POST", TEXT_TO_VIDEO, { key, body: { prompt: "hello" } });

/** Commands that the user of gateways was refused, but for one that `doctor` may try. */
async function refusedCommands({ ports, cli }: ShippedRedis): Promise<string[]> {
  const logs = await Promise.all(ports.map((port) => cli(port, "ACL", "LOG")));
  return logs
    .flatMap((log) => [...log.matchAll(/^object\n(.*)$/gm)].map(([, object = ""]) => object))
    .filter((object) => object !== "config|get");
}

// Guarantee: the move to the shipped cluster by import works as docs/operations/redis-cluster.md has it, to the last name.
test("a store of one server is imported into the shipped cluster over TLS", async () => {
  const [redis, old] = await Promise.all([startShippedRedis("cluster"), givenRedis()]);
  cleanups.push(redis.stop, old.stop);
  const made = await Promise.all(Array.from({ length: 12 }, () => givenKey(old.client)));
  const target = redis.ports[0]!;
  const places = ["--cluster", "import", `127.0.0.1:${target}`, "--cluster-from", `127.0.0.1:${old.port}`];
  const imported = () => redis.cli(target, ...places, "--cluster-copy", "--cluster-replace");
  // Without what the guide says first, the old server sends plain text to a TLS port.
  await expect(imported()).rejects.toMatchObject({ stdout: expect.stringContaining("IOERR") });
  const pem = (name: string): string => join(redis.secrets, name);
  await old.client.config(
    "SET",
    "tls-ca-cert-file",
    pem("ca.pem"),
    "tls-cert-file",
    pem("cert.pem"),
    "tls-key-file",
    pem("key.pem"),
  );
  await old.client.config("SET", "tls-cluster", "yes");
  await imported();
  // A repeat, as after an import that broke off.
  await imported();
  const sizes = await Promise.all((await redis.primaries()).map((port) => redis.cli(port, "DBSIZE")));
  expect(sizes.reduce((sum, size) => sum + Number(size), 0)).toBe(await old.client.dbsize());
  const { code, stdout } = await runProcess(["ledger", "verify", "--json"], redis.env);
  expect({ code, ...JSON.parse(stdout) }).toMatchObject({ code: 0, ok: true, entries: made.length });
}, 120_000);

test.each(["sentinel", "cluster"] as const)(
  "%s from the shipped files: TLS, users, a killed primary, its return",
  async (kind) => {
    const { redis, gateway, tollgate, keys } = await givenDeployment(kind);
    const { answer } = await tollgate("doctor");
    expect(answer.checks.filter(({ status }: { status: string }) => status === "fail")).toEqual([]);
    const count = async (ask: (key: string) => Promise<{ status: number }>) =>
      (await Promise.all(keys.map(ask))).filter(({ status }) => status === 200).length;
    const generated = () => count((key) => generate(gateway.url, key));
    const served = () => count((key) => send(gateway.url, "GET", "/api/v1/credits", { key }));
    expect(await generated()).toBe(keys.length);

    const before = await redis.primaries();
    const killed = before[0]!;
    await redis.kill(killed);
    await redis.startAgain(killed);
    expect(await generated()).toBeLessThan(keys.length);
    await until(async () => (await served()) === keys.length, "all keys to be served again");
    expect(await generated()).toBe(keys.length);
    // A server that returns says that it is a primary, until Sentinel makes it a replica.
    await until(
      async () => !(await redis.primaries()).includes(killed),
      "the killed primary to be a replica",
    );
    const after = await redis.primaries();
    expect(after).toHaveLength(before.length);
    const messages = gateway.logs().map(({ msg }) => msg);
    expect(messages).toContain("the primaries of the store were found");

    await until(
      async () =>
        (await redis.cli(killed, "INFO", "replication").catch(() => "")).includes("master_link_status:up"),
      "the killed primary to follow the new one",
    );
    const ledger = async () => (await tollgate("ledger", "verify")).answer;
    const { entries } = await ledger();
    // A grant and two charges for each key, and a charge for each that was served while the primary was away.
    expect(entries).toBeGreaterThanOrEqual(3 * keys.length);
    await redis.cutPower();
    await until(async () => (await ledger())?.ok === true, "the servers to have read their files");
    expect(await ledger()).toMatchObject({ ok: true, entries });
    await until(async () => (await served()) === keys.length, "all keys to be served after a power cut");
    expect(await generated()).toBe(keys.length);
    expect(await refusedCommands(redis)).toEqual([]);
  },
  300_000,
);
