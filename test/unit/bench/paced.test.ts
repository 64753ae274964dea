import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterEach, expect, test } from "vitest";
import type { PacedJob, PacedResult } from "../../../bench/load/paced-client.ts";

const CLIENT = join(import.meta.dirname, "../../../bench/load/paced-client.ts");
const STALL_MS = 300;
const undo: (() => void)[] = [];

afterEach(() => {
  for (const step of undo.splice(0)) step();
});

/** A server that answers each request at once, but for one pause in which it answers nothing. */
async function givenServer(status: string): Promise<number> {
  let answers = 0;
  let silentUntilMs = 0;
  const server = createServer((socket) => {
    socket.on("error", () => {});
    socket.on("data", () => {
      if (++answers === 50) silentUntilMs = performance.now() + STALL_MS;
      const answer = `HTTP/1.1 ${status}\r\nContent-Length: 2\r\n\r\nok`;
      setTimeout(() => socket.write(answer), Math.max(0, silentUntilMs - performance.now()));
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  undo.push(() => server.close());
  const address = server.address();
  return typeof address === "object" && address ? address.port : 0;
}

async function pace(job: Partial<PacedJob> & { port: number }): Promise<PacedResult> {
  const folder = mkdtempSync(join(tmpdir(), "tollgate-paced-"));
  undo.push(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "job.json");
  const requests = ["GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"];
  const load = { host: "127.0.0.1", requests, connections: 2, perSecond: 500, seconds: 1 };
  writeFileSync(file, JSON.stringify({ ...load, ...job }));
  const child = spawn(process.execPath, [CLIENT, file], { stdio: ["ignore", "pipe", "inherit"] });
  return JSON.parse(await text(child.stdout)) as PacedResult;
}

// With two connections a closed loop would see the pause twice; 500 a second for 300 ms are 150 customers.
test("a pause of the server counts for every request that was due in it, sent or not", async () => {
  const result = await pace({ port: await givenServer("200 OK") });
  expect(result).toMatchObject({ requests: 500, unsuccessful: 0 });
  expect(result.maxUs).toBeGreaterThanOrEqual((STALL_MS - 5) * 1000);
  // Over a quarter of all fell due in the pause, and most of them waited for longer than this.
  expect(result.p90Us).toBeGreaterThanOrEqual(20_000);
});

test("answers that are not a 200 are counted as such", async () => {
  const result = await pace({ port: await givenServer("429 Too Many Requests") });
  expect(result.unsuccessful).toBe(500);
});
