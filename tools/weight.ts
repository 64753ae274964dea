import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, globSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { type AddressInfo, createServer as createTcpServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { parseArgs } from "node:util";

// node tools/weight.ts [--idle SECONDS] [--files] TREE...: what each checkout weighs, one column each: its source, the files that one
// generation, one poll and one grant enter (--files lists them), and an idle gateway's memory, commands and CPU. Each tree has its
// node_modules; redis-server is on the PATH.
// Cost per request is `npm run bench`. DESIGN sections 8 and 11 have the budgets.

const { values, positionals } = parseArgs({
  options: { idle: { type: "string", default: "60" }, files: { type: "boolean", default: false } },
  allowPositionals: true,
});
const IDLE_SECONDS = Number(values.idle);
/** Requests of each kind and round. What one request enters, all of them do in each round; work beside them does not. */
const REQUESTS = 20;
const ROUNDS = 20;
const ADMIN_TOKEN = "weight-admin-token-0123456789abcdef";
const BODY = JSON.stringify({ prompt: "a lighthouse at dusk" });

type Row = [name: string, figure: string];

/** Counts that a text editor could take: lines of code and comment, files, folders. */
function weighSource(tree: string): Row[] {
  const files = globSync("{src,lua}/**/*.{ts,js,lua}", { cwd: tree });
  let code = 0;
  let comment = 0;
  let blank = 0;
  let small = 0;
  for (const file of files) {
    const lines = readFileSync(join(tree, file), "utf8").trimEnd().split("\n");
    if (lines.length < 40) small++;
    for (const line of lines) {
      const text = line.trim();
      if (text === "") blank++;
      else if (/^(\/\/|\/\*|\*|--)/.test(text)) comment++;
      else code++;
    }
  }
  const beside = new Map<string, number>();
  for (const file of files) beside.set(dirname(file), (beside.get(dirname(file)) ?? 0) + 1);
  const [fullest] = [...beside].sort(([, a], [, b]) => b - a);
  return [
    ["lines of src and lua", String(code + comment + blank)],
    ["files", String(files.length)],
    ["files below 40 lines", String(small)],
    ["comment lines per 100 lines of code", ((100 * comment) / code).toFixed(1)],
    ["most files in one folder", `${fullest?.[1]} (${fullest?.[0]})`],
  ];
}

/** Loaded into the gateway before its own code: tells on request how often each function was called since it was last asked. */
const COUNTING = `
import { Session } from "node:inspector";
import { createServer } from "node:http";
const session = new Session();
session.connect();
session.post("Profiler.enable");
session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
createServer((request, response) => {
  session.post("Profiler.takePreciseCoverage", (error, { result }) => {
    const counts = {};
    for (const { url, functions } of result)
      if (url.startsWith("file:")) counts[url] = Math.max(0, ...functions.map(({ functionName, ranges }) => functionName === "" && ranges[0].startOffset === 0 ? 0 : ranges[0].count));
    response.end(JSON.stringify(counts));
  });
}).listen(Number(process.env.COUNTING_PORT), "127.0.0.1").unref();
`;

interface Started {
  url: string;
  adminUrl: string;
  /** Files of the tree of which a function was called at least so often since the last call. */
  entered(times: number): Promise<string[]>;
  pid: number;
  redisUrl: string;
  /** Commands that Redis has processed. */
  commands(): Promise<number>;
  stop(): Promise<void>;
}

async function freePort(): Promise<number> {
  const server = createTcpServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  return port;
}

async function start(tree: string, upstreamUrl: string, counted: boolean): Promise<Started> {
  const folder = mkdtempSync(join(tmpdir(), "tollgate-weight-"));
  const ports = await Promise.all([freePort(), freePort(), freePort(), freePort()]);
  const [redisPort, port, adminPort, countingPort] = ports as [number, number, number, number];
  const persistent = ["--appendonly", "yes", "--save", "", "--dir", folder];
  const redis = spawn("redis-server", ["--port", String(redisPort), "--bind", "127.0.0.1", ...persistent], {
    stdio: "ignore",
  });
  const counting = join(folder, "counting.mjs");
  writeFileSync(counting, COUNTING);
  const gateway = spawn(
    join(tree, "node_modules/node/bin/node"),
    ["--disable-sigusr1", ...(counted ? ["--import", counting] : []), join(tree, "src/main.ts")],
    {
      cwd: tree,
      stdio: "ignore",
      env: {
        ...process.env,
        NODE_ENV: "production",
        HOST: "127.0.0.1",
        PORT: String(port),
        ADMIN_PORT: String(adminPort),
        ADMIN_TOKEN,
        REDIS_URL: `redis://127.0.0.1:${redisPort}`,
        UPSTREAM_URL: upstreamUrl,
        UPSTREAM_API_KEY: "weight-upstream-key",
        JOURNAL: join(folder, "journal"),
        COUNTING_PORT: String(countingPort),
      },
    },
  );
  const adminUrl = `http://127.0.0.1:${adminPort}`;
  await untilReady(tree, adminUrl);
  return {
    url: `http://127.0.0.1:${port}`,
    adminUrl,
    pid: gateway.pid!,
    redisUrl: `redis://127.0.0.1:${redisPort}`,
    async commands() {
      const info = await capture("redis-cli", ["-p", String(redisPort), "info", "stats"]);
      return Number(/total_commands_processed:(\d+)/.exec(info)?.[1]);
    },
    async entered(times) {
      const counts = (await (await fetch(`http://127.0.0.1:${countingPort}`)).json()) as Record<
        string,
        number
      >;
      const own = `file://${tree}/src/`;
      return Object.keys(counts).filter((url) => url.startsWith(own) && counts[url]! >= times);
    },
    async stop() {
      await Promise.all([gateway, redis].map(end));
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function untilReady(tree: string, adminUrl: string): Promise<void> {
  for (let tries = 0; tries < 600; tries++) {
    const ready = await fetch(`${adminUrl}/readyz`).catch(() => undefined);
    if (ready?.ok) return;
    await pause(100);
  }
  throw new Error(`${tree}: the gateway is not ready after a minute`);
}

/** The first round over all partitions is over: it would count as entered by the requests beside it. */
async function untilQuiet({ commands }: Started): Promise<void> {
  for (let before = await commands(), tries = 0; tries < 60; tries++) {
    await pause(1000);
    const now = await commands();
    if (now - before < 100) return;
    before = now;
  }
}

async function end(child: ChildProcess): Promise<void> {
  child.kill("SIGKILL");
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
}

async function capture(command: string, args: string[], env = process.env): Promise<string> {
  const child = spawn(command, args, { env, stdio: ["ignore", "pipe", "inherit"] });
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (part: string) => {
    text += part;
  });
  const [code] = await once(child, "close");
  if (code !== 0) throw new Error(`${command} ${args.join(" ")} ended with ${code}`);
  return text;
}

/** Files that a generation, a poll and a grant enter, by V8's call counts. */
async function weighRequests(tree: string, upstreamUrl: string): Promise<Row[]> {
  const gateway = await start(tree, upstreamUrl, true);
  try {
    const env = { ...process.env, REDIS_URL: gateway.redisUrl, JOURNAL: "" };
    const limits = ["--rate-limit", "100000", "--max-concurrent", "10000", "--daily-limit", "1000000"];
    const node = join(tree, "node_modules/node/bin/node");
    const create = ["keys", "create", "--account", "weight", "--credits", "1000000", ...limits, "--json"];
    const { key } = JSON.parse(await capture(node, [join(tree, "src/cli.ts"), ...create], env));
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const generate = async () => {
      const init = { method: "POST", headers, body: BODY };
      const reply = await fetch(`${gateway.url}/api/v1/gen2/text-to-video`, init);
      const { data } = (await reply.json()) as { data?: { task_id: string } };
      if (!data) throw new Error(`a generation got ${reply.status}`);
      return data.task_id;
    };
    const poll = (id: string) => async () => {
      const reply = await fetch(`${gateway.url}/api/v1/tasks/${id}`, { headers });
      await reply.text();
    };
    const grant = async () => {
      const reply = await fetch(`${gateway.adminUrl}/manage/v1/accounts/weight/grants`, {
        method: "POST",
        headers: { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
        body: JSON.stringify({ credits: 1, reference: `weight-${Math.random()}` }),
      });
      if (reply.status !== 201) throw new Error(`${tree}: a grant got ${reply.status}`);
      await reply.text();
    };
    const taskId = await generate();
    await untilQuiet(gateway);
    const rows = [
      await enteredBy(gateway, tree, "generation", generate),
      await enteredBy(gateway, tree, "poll", poll(taskId)),
    ];
    if (existsSync(join(tree, "docs/management.openapi.json"))) {
      rows.push(await enteredBy(gateway, tree, "grant", grant));
    }
    return rows;
  } finally {
    await gateway.stop();
  }
}

async function enteredBy(
  gateway: Started,
  tree: string,
  name: string,
  send: () => Promise<unknown>,
): Promise<Row> {
  await send();
  await gateway.entered(1);
  let files: string[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    for (let sent = 0; sent < REQUESTS; sent++) await send();
    const entered = new Set(await gateway.entered(REQUESTS));
    files = round === 0 ? [...entered] : files.filter((url) => entered.has(url));
  }
  const lines = files.reduce(
    (sum, url) => sum + readFileSync(new URL(url), "utf8").trimEnd().split("\n").length,
    0,
  );
  if (values.files) {
    console.error(`${name}:\n${files.map((url) => `  ${url.slice(`file://${tree}/`.length)}`).join("\n")}`);
  }
  return [`files and lines that a ${name} enters`, `${files.length}, ${lines}`];
}

/** Memory, commands to Redis and CPU of a gateway without traffic; how long it takes to be ready. */
async function weighIdle(tree: string, upstreamUrl: string): Promise<Row[]> {
  const began = performance.now();
  const gateway = await start(tree, upstreamUrl, false);
  const readyMs = performance.now() - began;
  try {
    await pause(IDLE_SECONDS * 500);
    const before = {
      commands: await gateway.commands(),
      cpu: cpuMs(gateway.pid),
      at: performance.now(),
    };
    await pause(IDLE_SECONDS * 500);
    const seconds = (performance.now() - before.at) / 1000;
    const commands = (await gateway.commands()) - before.commands - 1;
    const status = readFileSync(`/proc/${gateway.pid}/status`, "utf8");
    return [
      ["ready after, s (with its Redis)", (readyMs / 1000).toFixed(2)],
      [
        `idle, after ${IDLE_SECONDS} s: resident MiB`,
        String(Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) >> 10),
      ],
      ["idle: commands to Redis a second", (commands / seconds).toFixed(1)],
      ["idle: CPU, % of a core", ((cpuMs(gateway.pid) - before.cpu) / seconds / 10).toFixed(2)],
    ];
  } finally {
    await gateway.stop();
  }
}

/** CPU of all threads of a process so far, ms. */
function cpuMs(pid: number): number {
  const threads = readdirSync(`/proc/${pid}/task`);
  const text = (tid: string) => readFileSync(`/proc/${pid}/task/${tid}/schedstat`, "utf8");
  return threads.reduce((sum, tid) => sum + Number(text(tid).split(" ")[0]), 0) / 1e6;
}

async function openUpstream(): Promise<Server> {
  let made = 0;
  const server = createServer((request, response) => {
    request.resume();
    const id = request.method === "POST" ? `task_${++made}` : (request.url ?? "").split("/").at(-1);
    const data = { task_id: id, status: "processing", progress: 10, created_at: new Date().toISOString() };
    response.setHeader("content-type", "application/json");
    request.on("end", () => response.end(JSON.stringify({ code: 200, msg: "success", data })));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return server;
}

const upstream = await openUpstream();
const upstreamUrl = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`;
const trees = (positionals.length > 0 ? positionals : ["."]).map((tree) => resolve(tree));
const columns: Row[][] = [];
for (const tree of trees) {
  columns.push([
    ...weighSource(tree),
    ...(await weighRequests(tree, upstreamUrl)),
    ...(await weighIdle(tree, upstreamUrl)),
  ]);
}
upstream.close();
upstream.closeAllConnections();
const names = [...new Set(columns.flat().map(([name]) => name))];
console.log(`|  | ${trees.map((tree) => tree.split("/").at(-1)).join(" | ")} |`);
console.log(`| --- |${" ---: |".repeat(trees.length)}`);
for (const name of names) {
  const figures = columns.map((rows) => rows.find(([of]) => of === name)?.[1] ?? "");
  console.log(`| ${name} | ${figures.join(" | ")} |`);
}
