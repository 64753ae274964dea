import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { Agent, createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Redis } from "ioredis";
import { issueKey } from "../src/operations/keys/issue-key.ts";
import { cliActor } from "../src/records/actor.ts";
import { accountNames, partitionOf } from "../src/records/names.ts";
import { readScript } from "../src/redis/script-source.ts";
import { oneNode } from "../src/redis/store-facts.ts";
import { startRedis } from "../src/sandbox/redis.ts";

// Checks if a gateway with this much memory can check a large ledger while it serves: node bench/check-memory.ts [MiB] [seconds].
// Needs root and cgroups (version 1 or 2): the limit is the kernel's, as in a container.

const [LIMIT_MIB = 128, SECONDS = 150] = process.argv.slice(2).map(Number);
const ACCOUNTS = 20_000;
const ENTRIES_EACH = 26;
const PER_SECOND = 200;
/** Requests under way at a time. */
const OPEN_MAX = 400;
const KEYS = 100;
const PATH = "/api/v1/gen2/text-to-video";
const MIB = 2 ** 20;

/** Accounts with one key, whose requests have all ended and are collected. ARGV: tag, entries of each, account ids. */
const SEED = `
local call = redis.call
${readScript("include/numbers")}
${readScript("include/money")}
${readScript("include/ledger")}
local tag, n = ARGV[1], tonumber(ARGV[2])
for at = 3, #ARGV do
  local id = ARGV[at]
  local key_id, account, ledger = "key_" .. id, tag .. ":account:" .. id, tag .. ":ledger"
  call("HSET", account, "money", "0 0 0 " .. int(n - 1) .. " -", "created_at", "1")
  post(account, ledger, "1", id, "recharge", 1000, 0, 0, "", "", "", "", { "reference", "all" })
  for number = 1, n - 1 do
    post(account, ledger, "1", id, "consume", -10, 0, 10, "${PATH}", "", "req_" .. id .. "_" .. int(number), key_id)
  end
  call("HSET", tag .. ":references:" .. id, "all", "1000")
  call("ZADD", tag .. ":accounts", 0, id)
  call("HSET", tag .. ":key:" .. key_id, "account_id", id, "tier", "standard", "sha256", key_id, "created_at", "1",
    "counters", "1 0 0 0")
  call("ZADD", tag .. ":keys:" .. id, "1", key_id)
end`;

async function seed(redis: Redis, partitions: number): Promise<void> {
  const byTag = Map.groupBy(
    Array.from({ length: ACCOUNTS }, (_, n) => `acc_${n}`),
    (id) => {
      const { account } = accountNames(partitionOf(id, partitions), id);
      return account.slice(0, account.indexOf("}") + 1);
    },
  );
  for (const [tag, ids] of byTag)
    for (let at = 0; at < ids.length; at += 50)
      await redis.eval(SEED, 0, tag, ENTRIES_EACH, ...ids.slice(at, at + 50));
}

async function startUpstream() {
  const server = createServer(async (request, response) => {
    for await (const _ of request);
    const taskId =
      request.method === "POST" ? randomBytes(16).toString("hex") : request.url!.split("/").at(-1);
    const data = { task_id: taskId, status: "processing", created_at: "2026-01-01T00:00:00Z" };
    response
      .setHeader("content-type", "application/json")
      .end(JSON.stringify({ code: 200, msg: "success", data }));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    stop: () => void server.close(),
  };
}

/** A group of the kernel whose processes have so much memory together. */
function createMemoryGroup(limitMiB: number) {
  const isFirst = readFileSync("/proc/mounts", "utf8").includes(" /sys/fs/cgroup/memory ");
  const folder = join(isFirst ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup", `tollgate-bench-${process.pid}`);
  mkdirSync(folder);
  const file = (first: string, second: string): string => join(folder, isFirst ? first : second);
  writeFileSync(file("memory.limit_in_bytes", "memory.max"), String(limitMiB * MIB));
  const read = (first: string, second: string): string => readFileSync(file(first, second), "utf8");
  const line = (name: string): number =>
    Number(new RegExp(`^${name} (\\d+)`, "m").exec(read("memory.stat", "memory.stat"))?.[1]) / MIB;
  return {
    procs: join(folder, "cgroup.procs"),
    /** Memory that cannot be given back; the file cache can. */
    anonymousMiB: () => line(isFirst ? "rss" : "anon"),
    usedMiB: () => Number(read("memory.usage_in_bytes", "memory.current")) / MIB,
    kills: () => Number(/oom_kill (\d+)/.exec(read("memory.oom_control", "memory.events"))?.[1] ?? 0),
    remove: () => rmdirSync(folder),
  };
}

interface Taken {
  atMs: number;
  ms: number;
  status: number;
}

/** Generations at a fixed rate, whatever the gateway does; latency counts from when each should have been sent. */
function startLoad(url: string, keys: readonly string[]) {
  const agent = new Agent({ keepAlive: true, maxSockets: OPEN_MAX });
  const taken: Taken[] = [];
  const startMs = performance.now();
  let sent = 0;
  let open = 0;
  const timer = setInterval(() => {
    while (sent < ((performance.now() - startMs) / 1000) * PER_SECOND)
      ask(keys[sent % keys.length]!, startMs + (1000 * sent++) / PER_SECOND);
  }, 5);
  function ask(key: string, dueMs: number): void {
    const done = (status: number): void => {
      open--;
      taken.push({ atMs: performance.now(), ms: performance.now() - dueMs, status });
    };
    // A customer who finds so many waiting gives up.
    if (open++ >= OPEN_MAX) {
      done(0);
      return;
    }
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    request(url + PATH, { method: "POST", agent, headers }, (response) => {
      response.resume().once("end", () => done(response.statusCode!));
    })
      .once("error", () => done(0))
      .end('{"prompt":"a quiet street"}');
  }
  return {
    taken,
    stop(): void {
      clearInterval(timer);
      agent.destroy();
    },
  };
}

function summary(taken: readonly Taken[]) {
  const good = taken.filter(({ status }) => status === 200).map(({ ms }) => ms);
  good.sort((a, b) => a - b);
  const at = (share: number): number => Math.round((good.at(Math.floor(good.length * share)) ?? 0) * 10) / 10;
  return {
    served: good.length,
    others: taken.length - good.length,
    p50: at(0.5),
    p99: at(0.99),
    max: at(-1 / Math.max(1, good.length)),
  };
}

function startGateway(env: Record<string, string>, config: object, procs: string, folder: string) {
  const file = join(folder, "tollgate.yaml");
  writeFileSync(file, JSON.stringify(config));
  const main = join(import.meta.dirname, "../src/main.ts");
  const script = `echo $$ > ${procs} && exec "$0" --disable-sigusr1 "$@"`;
  const child: ChildProcess = spawn("sh", ["-c", script, process.execPath, main], {
    env: {
      PATH: process.env.PATH,
      NODE_OPTIONS: process.env.GATEWAY_NODE_OPTIONS ?? "",
      TOLLGATE_CONFIG: file,
      ...env,
    },
    stdio: ["ignore", "pipe", "inherit"],
  });
  let text = "";
  child.stdout!.setEncoding("utf8").on("data", (more: string) => {
    text += more;
  });
  const logs = (): Record<string, unknown>[] =>
    text.split("\n").flatMap((line) => (line.endsWith("}") ? [JSON.parse(line)] : []));
  return { child, logs };
}

type Gateway = ReturnType<typeof startGateway>;
type Group = ReturnType<typeof createMemoryGroup>;

const hasEnded = ({ child }: Gateway): boolean => child.exitCode !== null || child.signalCode !== null;
const checksOf = ({ logs }: Gateway) => logs().filter(({ msg }) => msg === "ledger verified");

/** @returns the addresses of the gateway, once it is ready */
async function ready(gateway: Gateway): Promise<string> {
  const listeningLine = () => gateway.logs().find(({ msg }) => msg === "tollgate is listening");
  while (!listeningLine() && !hasEnded(gateway)) await delay(50);
  const { url, admin_url: adminUrl } = listeningLine() as { url: string; admin_url: string };
  while ((await fetch(`${adminUrl}/readyz`)).status !== 200) await delay(50);
  return url;
}

/** Until a check has ended, or the gateway has. @returns whether it has done what it should */
async function measure(gateway: Gateway, group: Group, keys: readonly string[]): Promise<boolean> {
  const url = await ready(gateway);
  console.log(
    `limit ${LIMIT_MIB} MiB; idle ${Math.round(group.anonymousMiB())} MiB that cannot be given back`,
  );
  const load = startLoad(url, keys);
  let peakMiB = 0;
  for (let second = 1; second <= SECONDS && !hasEnded(gateway) && checksOf(gateway).length < 1; second++) {
    await delay(1000);
    peakMiB = Math.max(peakMiB, group.anonymousMiB());
    if (second % 10 !== 0) continue;
    const recent = load.taken.filter(({ atMs }) => atMs > performance.now() - 10_000);
    const [anonymous, used] = [group.anonymousMiB(), group.usedMiB()].map(Math.round);
    console.log(
      `${second} s: ${anonymous} MiB, with the file cache ${used};`,
      JSON.stringify(summary(recent)),
    );
  }
  load.stop();
  const { child, logs } = gateway;
  const figures = { limitMiB: LIMIT_MIB, peakMiB: Math.round(peakMiB), killedByKernel: group.kills() };
  console.log(
    JSON.stringify({ ...figures, ended: child.signalCode ?? child.exitCode, ...summary(load.taken) }),
  );
  for (const line of logs()
    .filter(({ level }) => level === "warn" || level === "error" || Number(level) >= 40)
    .slice(0, 5))
    console.log(JSON.stringify(line));
  for (const check of checksOf(gateway)) console.log(JSON.stringify(check));
  return !hasEnded(gateway) && checksOf(gateway).some(({ violations }) => violations === 0);
}

async function main(): Promise<boolean> {
  const folder = mkdtempSync(join(tmpdir(), "tollgate-check-memory-"));
  const server = await startRedis({ dir: join(folder, "redis"), persistent: true });
  const redis = new Redis(server.url);
  const upstream = await startUpstream();
  const group = createMemoryGroup(LIMIT_MIB);
  let gateway: Gateway | undefined;
  try {
    const limits = { rate_limit: 1_000_000, max_concurrent: 1_000_000, daily_limit: 1_000_000 };
    const keys: string[] = [];
    for (let n = 0; n < KEYS; n++)
      keys.push((await issueKey(oneNode(redis), { credits: 1_000_000, limits }, cliActor())).key);
    await seed(redis, 64);
    const free = { HOST: "127.0.0.1", PORT: "0", ADMIN_PORT: "0" };
    const env = { ...free, REDIS_URL: server.url, UPSTREAM_URL: upstream.url, UPSTREAM_API_KEY: "secret" };
    const store = {
      journal: join(folder, "journal"),
      allow_no_persistence: true,
      ledger_check_interval: "1s",
    };
    gateway = startGateway(env, { store }, group.procs, folder);
    return await measure(gateway, group, keys);
  } finally {
    if (gateway && !hasEnded(gateway)) {
      gateway.child.kill();
      await once(gateway.child, "exit");
    }
    group.remove();
    upstream.stop();
    redis.disconnect();
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

const isMet = await main();
console.log(isMet ? "met: the ledger was checked, and the gateway lives" : "NOT met");
process.exit(isMet ? 0 : 1);
