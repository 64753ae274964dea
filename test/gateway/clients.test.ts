import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { readAccount } from "../../src/operations/accounts/accounts.ts";
import { oneNode } from "../../src/redis/nodes.ts";
import { expectStatus, givenGateway, type TestGateway } from "../support/gateway.ts";

// Guarantee: each recipe of docs/clients.md, run as it stands there, is charged once though its first answer is lost.

const ROOT = join(import.meta.dirname, "../..");
const run = promisify(execFile);

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await givenGateway();
});
afterAll(() => gateway.stop());

/** A TCP proxy in front of the gateway that breaks the first connection when its answer comes. */
async function givenLossyWay(url: string): Promise<{ url: string; lost(): number }> {
  let lost = 0;
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const target = connect(Number(new URL(url).port), "127.0.0.1");
    for (const socket of [client, target]) {
      sockets.add(socket);
      socket.on("error", () => undefined);
    }
    client.pipe(target);
    target.on("data", (bytes) => {
      if (lost > 0) {
        client.write(bytes);
        return;
      }
      lost++;
      client.resetAndDestroy();
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

test("every recipe of the page is among those that run here", async () => {
  expect([...(await recipes()).keys()]).toEqual([
    "openai.mjs",
    "runway.mjs",
    "fetch.mjs",
    "got.mjs",
    "axios.mjs",
    "curl.sh",
  ]);
});

const generationsSent = (): number =>
  gateway.generator.requests.filter(({ path }) => path === "/api/v1/gen2/text-to-video").length;

test.each(["openai.mjs", "runway.mjs", "fetch.mjs", "got.mjs", "axios.mjs", "curl.sh"])(
  "%s gets its task after a lost answer, and is charged once",
  async (name) => {
    const { key, accountId } = await gateway.givenKey();
    const before = generationsSent();
    const way = await givenLossyWay(gateway.url);
    // Inside the project, where the packages are found.
    const folder = await mkdtemp(join(ROOT, "node_modules/.clients-"));
    onTestFinished(() => rm(folder, { recursive: true }));
    const file = join(folder, name);
    await writeFile(file, (await recipes()).get(name)!);
    const program = name.endsWith(".sh") ? "bash" : process.execPath;
    const { stdout } = await run(program, [file], {
      env: { ...process.env, TOLLGATE_URL: way.url, TOLLGATE_KEY: key },
      timeout: 100_000,
    });
    expect(way.lost()).toBe(1);
    const { balance, recent } = await readAccount(oneNode(gateway.redis), accountId);
    expect(recent.filter(({ type }) => type === "consume")).toHaveLength(1);
    expect(balance).toBe(990);
    expect(generationsSent()).toBe(before + 1);
    const [taskId] = /task_[0-9a-f-]{36}/.exec(stdout) ?? [];
    expectStatus(await gateway.request("GET", `/api/v1/tasks/${taskId}`, { key }), 200);
  },
);
