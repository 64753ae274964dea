import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer as createHttpServer } from "node:http";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { readAccount } from "../../src/operations/accounts/accounts.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { expectStatus, givenGateway, type TestGateway } from "../support/gateway.ts";

// Guarantee: each recipe of docs/clients.md, run as it stands there, is charged once though its first answer is lost, and waits
// with its Idempotency-Key for an outcome that is unknown.

const ROOT = join(import.meta.dirname, "../..");
const run = promisify(execFile);

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await givenGateway();
});
afterAll(() => gateway.stop());

/** A TCP proxy in front of the gateway that loses the first answer, or its end. */
async function givenLossyWay(
  url: string,
  loses: "all" | "the end",
): Promise<{ url: string; lost(): number }> {
  let lost = 0;
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const target = connect(Number(new URL(url).port), "127.0.0.1");
    for (const socket of [client, target]) {
      sockets.add(socket);
      socket.on("error", () => undefined);
    }
    client.pipe(target);
    target.on("data", (bytes: Buffer) => {
      if (lost > 0) {
        client.write(bytes);
        return;
      }
      lost++;
      if (loses === "the end") client.end(bytes.subarray(0, -10));
      else client.resetAndDestroy();
    });
    target.on("close", () => client.end());
    client.on("close", () => target.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, lost: () => lost };
}

/** The recipes by their file names, which stand in their first lines. */
async function recipes(): Promise<Map<string, string>> {
  const page = await readFile(join(ROOT, "docs/clients.md"), "utf8");
  const blocks = [...page.matchAll(/```(?:js|sh)\n(?:\/\/|#) (\S+)\n([\s\S]+?)```/g)];
  return new Map(blocks.map(([, name, text]) => [name!, text!]));
}

const NAMES = ["openai.mjs", "runway.mjs", "fetch.mjs", "got.mjs", "axios.mjs", "curl.sh"];

test("every recipe of the page is among those that run here", async () => {
  expect([...(await recipes()).keys()]).toEqual(NAMES);
});

/** @param fast whether all that it waits takes a fiftieth of the time; a timeout of a request stays */
async function runRecipe(name: string, url: string, key: string, fast = false): Promise<string> {
  // Inside the project, where the packages are found.
  const folder = await mkdtemp(join(ROOT, "node_modules/.clients-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const file = join(folder, name);
  await writeFile(file, (await recipes()).get(name)!);
  await writeFile(join(folder, "sleep"), '#!/bin/sh\nexec /bin/sleep "$(($1 * 20))e-3"\n', {
    mode: 0o755,
  });
  await writeFile(join(folder, "fast.mjs"), FAST);
  const [program, ...flags] = name.endsWith(".sh")
    ? ["bash"]
    : [process.execPath, ...(fast ? ["--import", join(folder, "fast.mjs")] : [])];
  const path = fast ? `${folder}:${process.env.PATH}` : process.env.PATH;
  const { stdout } = await run(program!, [...flags, file], {
    env: { ...process.env, PATH: path, TOLLGATE_URL: url, TOLLGATE_KEY: key },
    timeout: 100_000,
  });
  return stdout;
}

const FAST = `
import { syncBuiltinESMExports } from "node:module";
import promises from "node:timers/promises";
const fast = (ms) => (ms === 90_000 ? ms : ms / 50);
const { setTimeout } = globalThis;
globalThis.setTimeout = (callback, ms, ...args) => setTimeout(callback, fast(ms), ...args);
const wait = promises.setTimeout;
promises.setTimeout = (ms, ...args) => wait(fast(ms), ...args);
syncBuiltinESMExports();
`;

const generationsSent = (): number =>
  gateway.generator.requests.filter(({ path }) => path === "/api/v1/gen2/text-to-video").length;

const LOSSES = NAMES.flatMap((name) => (["all", "the end"] as const).map((loses) => ({ name, loses })));

test.each(LOSSES)(
  "$name gets its task after $loses of the answer is lost, and is charged once",
  async ({ name, loses }) => {
    const { key, accountId } = await gateway.givenKey();
    const before = generationsSent();
    const way = await givenLossyWay(gateway.url, loses);
    const stdout = await runRecipe(name, way.url, key);
    expect(way.lost()).toBe(1);
    const { balance, recent } = await readAccount(oneNode(gateway.redis), accountId);
    expect(recent.filter(({ type }) => type === "consume")).toHaveLength(1);
    expect(balance).toBe(990);
    expect(generationsSent()).toBe(before + 1);
    const [taskId] = /task_[0-9a-f-]{36}/.exec(stdout) ?? [];
    expectStatus(await gateway.request("GET", `/api/v1/tasks/${taskId}`, { key }), 200);
  },
);

/** Answers as the gateway does where the upstream gave no clear answer: 502, then 409 for 103 s, here fifty times as fast. */
async function givenUnknownOutcome(): Promise<{ url: string; keys: unknown[] }> {
  const keys: unknown[] = [];
  let endsAtMs = 0;
  const server = createHttpServer((req, res) => {
    const send = (code: number, more: object, headers = {}): void => {
      res.writeHead(code, { "Content-Type": "application/json", ...headers });
      res.end(JSON.stringify({ code, ...more }));
    };
    req.resume().on("end", () => {
      keys.push(req.headers["idempotency-key"]);
      if (endsAtMs === 0) {
        endsAtMs = Date.now() + 103_000 / 50;
        send(502, { error: "no clear answer" });
        return;
      }
      const retryAfter = 103;
      if (Date.now() < endsAtMs)
        send(409, { error: "no answer yet", retryAfter }, { "Retry-After": retryAfter });
      else send(200, { data: { task_id: "task_after_all" } });
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, keys };
}

test.each(NAMES)("%s outlasts an outcome that is unknown for 103 s, with one key", async (name) => {
  const { url, keys } = await givenUnknownOutcome();
  expect(await runRecipe(name, url, "sk_any", true)).toContain("task_after_all");
  expect(keys.length).toBeGreaterThan(1);
  expect([...new Set(keys)]).toEqual([expect.stringMatching(/^[0-9a-f-]{36}$/)]);
});

// Guarantee: `tries` bounds what a call sends, whatever is answered.
test.each(NAMES)("%s gives up on a service that stays busy", async (name) => {
  let requests = 0;
  const server = createHttpServer((req, res) => {
    req.resume().on("end", () => {
      // A recipe that goes on is stopped by a definite refusal.
      const code = ++requests > 50 ? 400 : 503;
      res.writeHead(code, { "Content-Type": "application/json", "Retry-After": "1" });
      res.end(JSON.stringify({ code, error: "busy", retryAfter: 1 }));
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  await expect(runRecipe(name, url, "sk_x", true)).rejects.toThrow();
  expect(requests).toBe(name === "openai.mjs" ? 26 : 6);
});
