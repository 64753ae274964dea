import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { readdir, readFile, rm } from "node:fs/promises";
import { delimiter, dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parse } from "yaml";
import { startChild } from "../../src/sandbox/child.ts";
import { freePort } from "../../src/sandbox/redis.ts";
import { type BuiltStage, buildStages, identity } from "../support/deployment/image-build.ts";
import { send, until } from "../support/gateway.ts";
import { givenRedis, TEXT_TO_VIDEO, type TestRedis } from "../support/store-stage.ts";

const ADMIN_TOKEN = "correct-horse-battery";
const ROOT = resolve(import.meta.dirname, "../..");
/** Where a program may look for others; the image's Node is the one that runs this. */
const PATH = [dirname(process.execPath), "/usr/bin", "/bin"].join(delimiter);

let stages: Record<string, BuiltStage>;
let gateway: BuiltStage;
let redis: TestRedis;
beforeAll(async () => {
  stages = await buildStages();
  gateway = stages.gateway!;
  const compose = parse(await readFile(join(ROOT, "compose.yaml"), "utf8"), { merge: true });
  redis = await givenRedis(compose.services.redis.command.slice(1));
}, 900_000);
afterAll(async () => {
  await redis.stop();
  await rm(dirname(gateway.root), { recursive: true, force: true });
}, 120_000);

/** Runs a stage's command as a container would: its own environment and user, nothing of ours. */
async function start(stage: BuiltStage, env: Record<string, string>) {
  const [program = "", ...args] = stage.command;
  const all = { PATH, ...stage.env, ...env };
  const child = await startChild(program, args, {
    cwd: stage.workdir,
    env: all,
    stdio: ["ignore", "pipe", "pipe"],
    ...identity(),
  });
  let output = "";
  for (const stream of [child.process.stdout, child.process.stderr]) {
    stream?.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
  }
  return { ...child, env: all, output: () => output };
}

/** Long: this machine may have more to do than to run this. */
const EXEC_TIMEOUT_MS = 120_000;

/** Runs one command in the image's folder, as `docker exec` would. */
async function exec(words: readonly string[], env: Record<string, string>) {
  const [program = "", ...args] = words;
  const options = { cwd: gateway.workdir, env, timeout: EXEC_TIMEOUT_MS, ...identity() };
  return promisify(execFile)(program, args, options).then(
    ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
    ({ code, stdout, stderr }: { code: number; stdout: string; stderr: string }) => ({
      code,
      stdout,
      stderr,
    }),
  );
}

/** Answer of a command of the command line. */
async function tollgate(env: Record<string, string>, ...words: string[]) {
  const { stdout, stderr } = await exec(["node", "src/cli.js", ...words, "--json"], env);
  expect(stderr).toBe("");
  return JSON.parse(stdout);
}

/** The gateway and the sandbox of the Dockerfile, on free ports. */
async function givenContainers() {
  const [port, adminPort, sandboxPort] = await Promise.all([freePort(), freePort(), freePort()]);
  const sandbox = await start(stages.sandbox!, { PORT: String(sandboxPort) });
  const container = await start(gateway, {
    PORT: String(port),
    ADMIN_PORT: String(adminPort),
    REDIS_URL: redis.url,
    UPSTREAM_URL: `http://127.0.0.1:${sandboxPort}`,
    UPSTREAM_API_KEY: "upstream-secret",
    ADMIN_TOKEN,
  });
  const adminUrl = `http://127.0.0.1:${adminPort}`;
  const ready = () =>
    fetch(`${adminUrl}/readyz`).then(
      ({ status }) => status === 200,
      () => false,
    );
  try {
    await until(ready, "readyz");
    await until(() => sandbox.output().includes("Sandbox generator"), "the sandbox");
  } catch (error) {
    throw new Error(`${container.output()}${sandbox.output()}`, { cause: error });
  } finally {
    // Whatever comes of it, none is left behind.
    cleanups.push(
      () => container.stop(5000),
      () => sandbox.stop(5000),
    );
  }
  return { container, adminUrl, url: `http://127.0.0.1:${port}` };
}

const cleanups: (() => Promise<void>)[] = [];
afterAll(() => Promise.all(cleanups.map((cleanup) => cleanup())));

describe("the image", () => {
  test("holds what runs in production, and neither sandbox nor tools", async () => {
    const held = await readdir(gateway.workdir);
    expect(held.sort()).toEqual([
      ".tollgate",
      "cache",
      "config",
      "docs",
      "lua",
      "node_modules",
      "package.json",
      "src",
    ]);
    expect(existsSync(join(gateway.workdir, "src/sandbox"))).toBe(false);
    // The console's packages are served as they are; all others are in the bundle.
    expect(await readdir(join(gateway.workdir, "node_modules"))).toEqual(["htm", "preact", "uplot"]);
    const sources = await readdir(join(gateway.workdir, "src"), { recursive: true });
    expect(sources.filter((name) => name.endsWith(".ts"))).toEqual([]);
    for (const name of sources.filter((file) => /^[^/]*\.js$/.test(file)))
      expect(await readFile(join(gateway.workdir, "src", name), "utf8")).not.toContain(
        "src/sandbox/generator",
      );
    expect(await readdir(join(gateway.workdir, "config"))).not.toContain("grafana");
    expect(await readdir(join(gateway.root, "usr/local"), { recursive: true })).toEqual(["bin", "lib"]);
  });

  test("serves, is healthy, writes nowhere but to its volume, and ends with 0 after what is under way", async () => {
    const before = await readdir(gateway.root, { recursive: true });
    const { container, adminUrl, url } = await givenContainers();
    const { env } = container;

    expect(await exec(gateway.healthcheck, env)).toMatchObject({ code: 0 });
    // Pages that are made of files: they must have come along.
    for (const page of ["/metrics", "/openapi.json", "/console"]) {
      const headers = { authorization: `Bearer ${ADMIN_TOKEN}` };
      expect((await fetch(`${adminUrl}${page}`, { headers })).status, page).toBe(200);
    }
    expect(await tollgate(env, "doctor")).toMatchObject({ ok: true });
    const { key } = await tollgate(env, "keys", "create", "--credits", "100");
    const generate = (prompt: string) => send(url, "POST", TEXT_TO_VIDEO, { key, body: { prompt } });
    expect(await generate("hello")).toMatchObject({ status: 200 });

    const underWay = generate("[sandbox: delay=1500ms]");
    const inFlight = async () => /_in_flight 1$/m.test(await (await fetch(`${adminUrl}/metrics`)).text());
    await until(inFlight, "the request to be under way");
    container.process.kill("SIGTERM");
    expect(await underWay).toMatchObject({ status: 200 });
    expect(await container.ended).toBe("exit code 0");
    expect(await exec(gateway.healthcheck, env)).toMatchObject({ code: 1 });

    const journal = join(".tollgate", "journal");
    const written = (await readdir(gateway.root, { recursive: true })).filter(
      (path) => !before.includes(path),
    );
    expect(written.filter((path) => !path.includes(journal))).toEqual([]);
    expect(await tollgate(env, "ledger", "verify")).toMatchObject({ ok: true, entries: 3 });
  }, 300_000);
});
