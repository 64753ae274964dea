import { type ChildProcess, execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { patchAccount } from "../../src/operations/accounts/operator-accounts.ts";
import { cliActor } from "../../src/records/actor.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { EMPTY } from "../../src/sandbox/demo.ts";
import { selfSignedCertificate } from "../../src/sandbox/generator/server.ts";
import { startRedis } from "../../src/sandbox/redis.ts";
import { copySources } from "../fault/tree.ts";
import { until } from "../support/gateway.ts";
import { holdPort } from "../support/held-port.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";

const folder = await mkdtemp(join(tmpdir(), "tollgate-start-"));
/** Sources of the test's own, where nothing has been started before. */
const ROOT = copySources(resolve(import.meta.dirname, "../.."), join(folder, "tree"));
const TOLLGATE_DIR = join(ROOT, ".tollgate");
const LAST_LINE = "\nDemo key (";

/** As much of curl as the lines use, for machines without one: it comes last on the PATH. */
const CURL = `#!${process.execPath}
const { readFileSync } = require("node:fs");
const init = { headers: {} };
let url, shown = "";
for (const words = process.argv.slice(2); words.length > 0; ) {
  const word = words.shift();
  if (word === "-X") init.method = words.shift();
  else if (word === "-d") init.body = words.shift();
  else if (word === "-i") shown = "head";
  else if (word === "-H") init.headers[/^[^:]+/.exec(words[0])[0]] = words.shift().replace(/^[^:]+: */, "");
  else if (word === "-F") {
    const [, name, path, type] = /^(\\w+)=@(.+);type=(.+)$/.exec(words.shift());
    init.body = new FormData();
    init.body.append(name, new Blob([readFileSync(path)], { type }), "a.png");
  } else if (word === "-sSk") process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
  else if (word !== "-sS") url = new URL(word);
}
fetch(url, init).then(async (answer) => {
  if (shown) console.log("HTTP/1.1 " + answer.status);
  process.stdout.write(await answer.text());
});
`;

let redis: TestRedis;
let running: ChildProcess | undefined;
beforeAll(async () => {
  redis = await givenRedis();
  await writeFile(join(folder, "curl"), CURL, { mode: 0o700 });
});
afterAll(async () => {
  running?.kill("SIGTERM");
  await redis.stop();
  await rm(folder, { recursive: true });
});

/** Ports that are still free when a program comes to listen on them, seconds later. */
async function givenPorts(): Promise<{ PORT: string; ADMIN_PORT: string }> {
  const [port, adminPort] = await Promise.all([holdPort(), holdPort()]);
  onTestFinished(() => {
    port.release();
    adminPort.release();
  });
  return { PORT: String(port.port), ADMIN_PORT: String(adminPort.port) };
}

/** `npm start` on a Redis of the test's own, up to its last line. @returns all that it has printed */
async function start(more: Record<string, string> = {}): Promise<string> {
  const env = {
    ...process.env,
    ...(await givenPorts()),
    ADMIN_TOKEN: "",
    REDIS_URL: redis.url,
    SANDBOX_DURATION_MS: "0",
    ...more,
  };
  const child = spawn(process.execPath, [join(ROOT, "src/sandbox/start.ts")], { env, cwd: ROOT });
  running = child;
  let printed = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      printed += text;
    });
  }
  await until(() => printed.includes(LAST_LINE) || child.exitCode !== null, "the lines to paste");
  expect(printed).toContain(LAST_LINE);
  return printed;
}

/** Ctrl-C, twice, as npm and a terminal send it. */
async function stop(): Promise<number | null> {
  const ended = once(running!, "exit");
  running!.kill("SIGINT");
  running!.kill("SIGINT");
  const [code] = await ended;
  return code;
}

/** The console's address and the token that this run made for it. */
function consoleIn(printed: string): { url: string; token: string } {
  const [, url = "", token = ""] =
    /^The operators' console: (\S+)\/console \(sign in with token (\S+)\)$/m.exec(printed) ?? [];
  return { url, token };
}

/** The lines to paste from where they name the gateway. */
const linesIn = (printed: string): string =>
  printed.slice(printed.indexOf("export TOLLGATE="), printed.indexOf(LAST_LINE));

/** A shell's output for lines that are typed into it; `said` without the echo of the lines. */
function paste(program: string, args: readonly string[], lines: string) {
  const env = { ...process.env, TMPDIR: folder, PATH: `${process.env.PATH}${delimiter}${folder}` };
  return new Promise<{ stdout: string; complaints: string }>((done, fail) => {
    const child = execFile(program, args, { env, cwd: ROOT }, (error, stdout, stderr) => {
      const complaints = stderr.split("\n").filter((line) => !/^\S*[#$] /.test(line));
      if (error && args.includes("-e")) fail(error);
      else done({ stdout, complaints: complaints.join("\n") });
    });
    child.stdin!.end(lines);
  });
}

const onPath = (program: string): boolean =>
  (process.env.PATH ?? "").split(delimiter).some((dir) => existsSync(join(dir, program)));

const keyIn = (printed: string): string | undefined => /^Demo key .*: (sk_\S+)$/m.exec(printed)?.[1];

// Guarantee: a new user pastes what `npm start` prints and sees a video, its price and its limits.
test("the lines that npm start prints work when pasted; a second start finds the data of the first", async () => {
  const printed = await start();
  const pasted = await paste("sh", ["-e", "-s"], linesIn(printed));
  const [taskId, task, credits, uploaded, ...refused] = pasted.stdout.trimEnd().split(/\r?\n/);
  expect(JSON.parse(task!).data).toMatchObject({ task_id: taskId, status: "completed", progress: 100 });
  expect((await fetch(JSON.parse(task!).data.video_url)).status).toBe(200);
  const { data } = JSON.parse(credits!);
  expect(data).toMatchObject({ balance: 990, total_used: 10, tier: "standard" });
  expect(data.recent_transactions.map(({ amount }: { amount: number }) => amount)).toEqual([-10, 1000]);
  expect(JSON.parse(uploaded!).data.url).toMatch(/^https:/);
  expect(refused[0]).toContain("401");
  const [unknown, poor, failed, after, ...four] = refused
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line));
  expect(unknown).toMatchObject({ code: 401, error: "Invalid API key" });
  expect(poor).toMatchObject({ code: 402, msg: expect.stringContaining("costs 10, the balance is 0") });
  expect(failed.data).toMatchObject({ status: "failed" });
  expect(after.data).toMatchObject({ balance: 990 });
  expect(after.data.recent_transactions.map(({ amount }: { amount: number }) => amount)).toEqual([
    10, -10, -10, 1000,
  ]);
  expect(four.map(({ code }) => code)).toEqual([200, 200, 200, 2002]);
  expect(four[3].retryAfter).toBeGreaterThan(0);

  // Guarantee: in another terminal, with variables of its own, commands use the Redis of the gateway.
  const [, doctor] = /^\((.* doctor)\)$/m.exec(printed) ?? [];
  const env = { ...process.env, REDIS_URL: "redis://127.0.0.1:1", ARCHIVE_URL: "postgres://127.0.0.1:1/x" };
  // Not content with a Redis of tests, which keeps nothing; with the generator it is.
  const { stdout } = await promisify(execFile)("sh", ["-c", `${doctor} --json; true`], { env, cwd: ROOT });
  const { checks } = JSON.parse(stdout) as { checks: { name: string; status: string }[] };
  expect(checks).toContainEqual(expect.objectContaining({ name: "upstream", status: "ok" }));
  expect(checks).toContainEqual(
    expect.objectContaining({
      name: "redis",
      status: "ok",
      message: expect.stringContaining(`:${redis.port}`),
    }),
  );
  expect(checks.map(({ name }) => name)).not.toContain("archive");

  // Guarantee: the credential of the upstream is on no screen; the doctor has it from a file of its owner's.
  const [, file = ""] = /\(\. (\S+); /.exec(printed) ?? [];
  const kept = await readFile(join(ROOT, file), "utf8");
  const [, credential = ""] = /UPSTREAM_API_KEY='([^']+)'/.exec(kept) ?? [];
  expect(credential.length).toBeGreaterThan(20);
  expect(printed).not.toContain(credential);
  expect((await stat(join(ROOT, file))).mode & 0o777).toBe(0o600);
  // The log's line of the request with which the start looks at the gateway may come late; a terminal does not show it.
  const forPeople = printed.split("\n").filter((line) => line !== "" && !line.startsWith("{"));
  expect(forPeople.at(-1)).toMatch(/^Demo key .*: sk_/);
  const [, adminPort, sandboxPort, instead] =
    /^Ports: gateway \d+, metrics and console (\d+), Redis \d+, upstream (\d+)(.*)$/m.exec(printed) ?? [];
  expect(instead).toBe(sandboxPort === "4010" ? "" : " (4010 is taken)");

  // Guarantee: with other ports than the usual ones, commands ask the gateway that was started.
  const compare = `. ${file}; ${process.execPath} src/cli.ts config diff --json`;
  const compared = await promisify(execFile)("sh", ["-c", compare], { env, cwd: ROOT });
  expect(JSON.parse(compared.stdout).against).toBe(`the gateway at http://127.0.0.1:${adminPort}`);

  // Guarantee: a newcomer's console works: the token that is printed is the gateway's, and the next start keeps it.
  const { url: adminUrl, token } = consoleIn(printed);
  expect(token).toMatch(/^[\w-]{32}$/);
  const config = (given: string) =>
    fetch(`${adminUrl}/config`, { headers: { authorization: `Bearer ${given}` } });
  expect([(await config(token)).status, (await config(`${token}x`)).status]).toEqual([200, 401]);
  const own = createHash("sha256").update(redis.url).digest("hex").slice(0, 12);
  expect((await stat(join(TOLLGATE_DIR, `admin-token-${own}`))).mode & 0o777).toBe(0o600);

  expect(await stop()).toBe(0);
  const nodes = oneNode(redis.client);
  await patchAccount(nodes, EMPTY.account, { status: "closed" }, cliActor());
  const again = await start();
  expect(again, "a closed account stops no start").toContain("accounts set demo-empty --status active");
  await patchAccount(nodes, EMPTY.account, { status: "active" }, cliActor());
  // Guarantee: what npm start asks of its gateway by itself does not look like a mistake in the log.
  for (const text of [printed, again]) expect(text).not.toMatch(/"status":4(?!03)/);
  expect(keyIn(again)).toBe(keyIn(printed));
  expect(consoleIn(again).token).toBe(token);
  const headers = { authorization: `Bearer ${keyIn(again)}` };
  const [, url] = /^Tollgate is ready at (\S+);/m.exec(again) ?? [];
  const later = await fetch(`${url}/api/v1/credits`, { headers });
  expect(await later.json()).toMatchObject({ data: { balance: 960 } });
  expect(await stop()).toBe(0);
});

// Guarantee: the same lines show the whole way with the adapter kie.
test("with UPSTREAM_ADAPTER=kie the sandbox speaks as kie.ai, and the lines work when pasted", async () => {
  // Not that of the test above, whose last lines have left tasks that run.
  const own = await givenRedis();
  onTestFinished(() => own.stop());
  const printed = await start({ UPSTREAM_ADAPTER: "kie", REDIS_URL: own.url });
  const pasted = await paste("sh", ["-e", "-s"], linesIn(printed));
  const [taskId, task, credits, uploaded, ...rest] = pasted.stdout.trimEnd().split(/\r?\n/);
  expect(JSON.parse(task!).data).toMatchObject({ task_id: taskId, status: "completed", progress: 100 });
  expect((await fetch(JSON.parse(task!).data.video_url)).status).toBe(200);
  expect(JSON.parse(credits!).data).toMatchObject({ balance: 990, total_used: 10 });
  expect(JSON.parse(uploaded!).data.url).toMatch(/^https:/);
  const answers = rest.filter((line) => line.startsWith("{")).map((line) => JSON.parse(line));
  expect(answers[2].data).toMatchObject({ status: "failed", failure_reason: expect.any(String) });
  expect(answers[3].data).toMatchObject({ balance: 990 });
  expect(await stop()).toBe(0);
});

// Guarantee: a line pasted into an interactive shell is no "command not found", and none is a comment, which zsh runs.
test.each(["bash --norc -i", "zsh -f -i"])("the lines to paste are all understood by %s", async (shell) => {
  const [program = "", ...options] = shell.split(" ");
  if (!onPath(program)) return console.log(`Skipped: no ${program} on the PATH.`);
  const printed = await start();
  expect((await paste(program, [...options, "-s"], "# a comment\nnosuchcommand\n")).complaints).toMatch(
    /not found: nosuchcommand|nosuchcommand: command not found/,
  );
  const { complaints, stdout } = await paste(program, [...options, "-s"], linesIn(printed));
  expect(complaints).not.toMatch(/not found|parse error|syntax error|no matches found|unexpected|event not/i);
  expect(stdout).toContain('"code":402');
  expect(await stop()).toBe(0);
});

// Guarantee: the two commands of the README work with TLS as well.
test("with server.tls and admin.tls npm start says https, and its lines work when pasted", async () => {
  const { cert, key } = selfSignedCertificate();
  const tls = { cert: join(folder, "cert.pem"), key: join(folder, "key.pem") };
  const config = join(folder, "Ada's tls.yaml");
  await Promise.all([writeFile(tls.cert, cert), writeFile(tls.key, key)]);
  await writeFile(config, JSON.stringify({ server: { tls }, admin: { tls } }));
  // Not that of the test above, whose last lines have left tasks that run.
  const own = await givenRedis();
  onTestFinished(own.stop);
  const env = { TOLLGATE_CONFIG: config, REDIS_URL: own.url };
  const printed = await start(env);
  expect(printed).toMatch(/^Tollgate is ready at https:\/\/\S+; metrics at https:\/\/\S+\/metrics$/m);
  const pasted = await paste("sh", ["-e", "-s"], linesIn(printed));
  const [taskId, task] = pasted.stdout.split(/\r?\n/);
  expect(JSON.parse(task!).data).toMatchObject({ task_id: taskId, status: "completed" });

  // Guarantee: commands of another terminal read the config file that the gateway reads.
  const [, file = ""] = /\(\. (\S+); /.exec(printed) ?? [];
  const check = `. ${file}; ${process.execPath} src/cli.ts config check --json`;
  const checked = await promisify(execFile)("sh", ["-c", check], { cwd: ROOT });
  expect(JSON.parse(checked.stdout)).toMatchObject({ ok: true, file: config });
  expect(await stop()).toBe(0);
  expect(keyIn(await start(env))).toBe(keyIn(printed));
  expect(await stop()).toBe(0);
});

test("with client_ca npm start says at once that it has no client certificate", async () => {
  const { cert, key } = selfSignedCertificate();
  const files = { cert: join(folder, "cert.pem"), key: join(folder, "key.pem") };
  const config = join(folder, "client-ca.yaml");
  await Promise.all([writeFile(files.cert, cert), writeFile(files.key, key)]);
  await writeFile(config, JSON.stringify({ server: { tls: { ...files, client_ca: files.cert } } }));
  const ports = await givenPorts();
  const started = promisify(execFile)(process.execPath, [join(ROOT, "src/sandbox/start.ts")], {
    env: { ...process.env, ...ports, REDIS_URL: redis.url, TOLLGATE_CONFIG: config },
  });
  await expect(started).rejects.toMatchObject({
    code: 1,
    stderr: expect.stringContaining("asks for a client certificate"),
  });
});

test.each([
  ["garbage", "such as redis://"],
  ["localhost:21001", "such as redis://"],
  ["redis+cluster://127.0.0.1:21001", "the address of one server is needed"],
])("REDIS_URL=%s is refused by npm start in words", async (url, words) => {
  const env = { ...process.env, ...(await givenPorts()) };
  const started = promisify(execFile)(process.execPath, [join(ROOT, "src/sandbox/start.ts")], {
    env: { ...env, REDIS_URL: url },
  });
  await expect(started).rejects.toMatchObject({
    code: 1,
    stderr: expect.stringMatching(
      new RegExp(`REDIS_URL must be.* ${words}.*; left out, a Redis is started for you`),
    ),
  });
});

test.each(["PORT", "ADMIN_PORT", "SANDBOX_PORT", "REDIS_PORT"])(
  "a %s that is named and taken is an error",
  async (name) => {
    const taken = createServer().listen(0, "127.0.0.1");
    await once(taken, "listening");
    onTestFinished(() => void taken.close());
    const { port } = taken.address() as AddressInfo;
    const env: NodeJS.ProcessEnv = { ...process.env, ...(await givenPorts()), [name]: String(port) };
    // The only one that a given Redis has no use for.
    if (name !== "REDIS_PORT") env.REDIS_URL = redis.url;
    const started = promisify(execFile)(process.execPath, [join(ROOT, "src/sandbox/start.ts")], { env });
    await expect(started).rejects.toMatchObject({
      code: 1,
      stderr: expect.stringMatching(`Port ${port} on 127.0.0.1 is taken\\. .*: ${name}=\\d+ npm start`),
    });
  },
);

test("REDIS_PORT beside REDIS_URL is refused: the port would be of another Redis", async () => {
  const env = { ...process.env, ...(await givenPorts()), REDIS_URL: redis.url, REDIS_PORT: "6390" };
  const started = promisify(execFile)(process.execPath, [join(ROOT, "src/sandbox/start.ts")], { env });
  await expect(started).rejects.toMatchObject({ code: 1, stderr: expect.stringContaining("set one") });
});

test("a start while the Redis of another one is ending says that it waits, and for whom", async () => {
  const earlier = await givenRedis();
  const waitedFor: number[] = [];
  const waiting = (port: number): void => {
    waitedFor.push(port);
    void earlier.end();
  };
  const later = await startRedis({ dir: earlier.dir, persistent: true, waiting });
  await later.stop();
  expect(waitedFor).toEqual([earlier.port]);
  await earlier.stop();
});

test("an address without Redis is answered with what keeps production data safe", async () => {
  const { port, release } = await holdPort();
  const env = { ...process.env, ...(await givenPorts()), REDIS_URL: `redis://127.0.0.1:${port}` };
  release();
  const started = promisify(execFile)(process.execPath, [join(ROOT, "src/sandbox/start.ts")], {
    env,
    cwd: ROOT,
  });
  const { stderr } = await started.catch((error: { stderr: string }) => error);
  expect(stderr).toContain("that this Redis runs with its data: an empty one in its place has no accounts");
  expect(stderr).not.toMatch(/Start a Redis/);
});
