import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, statSync, truncateSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { grantCredits } from "../../src/operations/credits/grants.ts";
import { cliActor } from "../../src/records/actor.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { runHere } from "../support/cli.ts";
import { givenGateway, type TestGateway } from "../support/gateway.ts";
import { givenKey, givenRedis, ready, type TestRedis } from "../support/store-stage.ts";
import { until } from "../support/until.ts";

let redis: TestRedis;
let folder: string;
let gateways: TestGateway[];
beforeEach(async () => {
  redis = await givenRedis();
  folder = await mkdtemp(join(tmpdir(), "tollgate-torn-"));
  gateways = [];
});
afterEach(async () => {
  for (const gateway of gateways) await gateway.stop();
  await redis.stop();
  vi.unstubAllEnvs();
  await rm(folder, { recursive: true, force: true });
});

async function givenGatewayHere(redisUrl = redis.url): Promise<TestGateway> {
  const gateway = await givenGateway({ redisUrl, config: { store: { journal: folder } } });
  gateway.redis.disconnect();
  gateways.push(gateway);
  return gateway;
}

/** The file that Redis appends to. */
function appendedFile(): string {
  const dir = join(redis.dir, "appendonlydir");
  const number = (file: string): number => Number(/\.(\d+)\.incr\.aof$/.exec(file)?.[1]);
  const files = existsSync(dir) ? readdirSync(dir).filter((file) => file.endsWith(".incr.aof")) : [];
  return join(dir, files.sort((a, b) => number(b) - number(a))[0]!);
}

/** Cuts the file within the script that wrote this text last, shortly behind it. */
async function loseEndBehind(text: string): Promise<void> {
  await redis.kill();
  const file = appendedFile();
  const at = readFileSync(file).lastIndexOf(text);
  expect(at).toBeGreaterThan(0);
  truncateSync(file, at + text.length + 20);
  await redis.startAgain();
}

async function verified(): Promise<unknown[]> {
  const file = join(folder, "tollgate.yaml");
  await writeFile(file, `store:\n  journal: ${folder}\n`);
  const { stdout } = await runHere(["ledger", "verify", "--json"], {
    REDIS_URL: redis.url,
    TOLLGATE_CONFIG: file,
  });
  return (JSON.parse(stdout) as { violations: unknown[] }).violations;
}

const timesUsable = ({ logs }: TestGateway): number =>
  logs.filter((line) => line.includes("the store is usable")).length;

/** Its time in whole seconds is -1 until then. */
const hasRewritten = async (): Promise<boolean> => !(await persistence("aof_last_rewrite_time_sec:-1"));

const persistence = (line: string): Promise<boolean> =>
  redis.client.info("persistence").then((text) => text.includes(`\n${line}\r`));

// Guarantee: what one script writes is there as a whole or not at all, however often Redis loses power.
test("half a grant that lost power left in Redis's file does not come back at a later start", async () => {
  const { accountId } = await givenKey(redis.client);
  await grantCredits(oneNode(redis.client), accountId, 500, "invoice 7", cliActor());
  await loseEndBehind("invoice 7");
  await ready(await givenGatewayHere());
  await until(() => persistence("aof_rewrite_in_progress:0"), "the end of the rewrite");
  expect(await grantCredits(oneNode(redis.client), accountId, 500, "invoice 7", cliActor())).toMatchObject({
    outcome: "recharged",
    balance: 1500,
  });
  await redis.kill();
  await redis.startAgain();
  expect(await verified()).toEqual([]);
});

/** Where a limit on the size of its files does not end Redis, but fails its writes as a full disk does. */
async function givenRedisThatMeetsFullDisks(): Promise<void> {
  await redis.stop();
  const path = process.env.PATH;
  const bin = join(folder, "bin");
  await mkdir(bin);
  const program = `#!/bin/sh\ntrap '' XFSZ\nPATH='${path}'\nexec "$(command -v redis-server || command -v valkey-server)" "$@"\n`;
  await writeFile(join(bin, "redis-server"), program, { mode: 0o755 });
  vi.stubEnv("PATH", `${bin}:${path}`);
  redis = await givenRedis();
}

/** @param bytes by which the file that Redis appends to may still grow */
async function leaveOnDisk(bytes: number | "all"): Promise<void> {
  const limit = bytes === "all" ? "unlimited" : statSync(appendedFile()).size + bytes;
  execFileSync("prlimit", ["--pid", await pidOfRedis(), `--fsize=${limit}:`]);
}

// Guarantee: a disk of Redis that was full, once there is room again, takes nothing that was written before or after it.
test("a Redis whose disk was full can read its file at the next start", async () => {
  await givenRedisThatMeetsFullDisks();
  const { accountId } = await givenKey(redis.client);
  const grant = (reference: string): Promise<unknown> =>
    grantCredits(oneNode(redis.client), accountId, 500, reference, cliActor());
  const gateway = await givenGatewayHere();
  await ready(gateway);
  await until(hasRewritten, "the rewrite after the start");
  await leaveOnDisk(100);
  await grant("invoice 7");
  await until(() => persistence("aof_last_write_status:err"), "the full disk");
  await until(() => gateway.logs.some((line) => line.includes("MISCONF")), "the gateway to be told");
  await leaveOnDisk("all");
  await until(() => timesUsable(gateway) === 2, "the gateway to be back");
  await until(() => persistence("aof_rewrites:2"), "the rewrite after the full disk");
  await until(() => persistence("aof_rewrite_in_progress:0"), "the end of it");
  await grant("invoice 8");
  await redis.kill();
  await redis.startAgain();
  expect(await grant("invoice 7")).toMatchObject({ outcome: "duplicate" });
  expect(await verified()).toEqual([]);
});

test("a Redis that was rewritten since its start is not asked again", async () => {
  await givenKey(redis.client);
  await ready(await givenGatewayHere());
  await until(hasRewritten, "the rewrite");
  await ready(await givenGatewayHere());
  expect(await persistence("aof_rewrites:1")).toBe(true);
});

test("a user that may not have the file rewritten is served, and told once", async () => {
  const rights = ["~*", "&*", "+@all", "-bgrewriteaof"];
  await redis.client.call("ACL", "SETUSER", "gateway", "on", ">secret", ...rights);
  const gateway = await givenGatewayHere(redis.url.replace("redis://", "redis://gateway:secret@"));
  await ready(gateway);
  await redis.client.call("CLIENT", "KILL", "USER", "gateway");
  await until(() => timesUsable(gateway) === 2, "the gateway to be back");
  const warnings = gateway.logs.filter((line) => line.includes("+bgrewriteaof"));
  expect(warnings).toHaveLength(1);
  expect(await persistence("aof_rewrites:0")).toBe(true);
});

// Guarantee: where the copy does not fit on the disk, Redis is not filled again and again until it refuses writes.
test("a rewrite that failed is not begun again at the next probe", async () => {
  await givenKey(redis.client);
  await redis.client.config("SET", "rdb-key-save-delay", 10_000_000);
  const gateway = await givenGatewayHere();
  await ready(gateway);
  await until(() => persistence("aof_rewrite_in_progress:1"), "the rewrite");
  for (const pid of await childrenOfRedis()) process.kill(pid, "SIGKILL");
  await until(() => persistence("aof_last_bgrewrite_status:err"), "the end of the rewrite");
  await redis.client.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
  await until(() => timesUsable(gateway) === 2, "the gateway to be back");
  expect(await persistence("aof_rewrites:1")).toBe(true);
});

const pidOfRedis = async (): Promise<string> =>
  /process_id:(\d+)/.exec(await redis.client.info("server"))![1]!;

async function childrenOfRedis(): Promise<number[]> {
  const pid = await pidOfRedis();
  return readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean).map(Number);
}
