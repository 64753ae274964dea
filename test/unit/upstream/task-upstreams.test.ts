import { createServer } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test } from "vitest";
import type { TaskStatus } from "../../../src/domain/answers.ts";
import { selfSignedCertificate } from "../../../src/sandbox/generator/server.ts";
import { createLogger } from "../../../src/telemetry/log.ts";
import { upstreamTag } from "../../../src/upstream/task-route.ts";
import { type TaskUpstreamSettings, TaskUpstreams } from "../../../src/upstream/task-upstreams.ts";
import { until } from "../../support/until.ts";

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

const SETTINGS: TaskUpstreamSettings = {
  url: "http://new.example.com",
  apiKey: "key",
  previousUrl: undefined,
  previousApiKey: undefined,
  replaces: [],
  connectTimeoutMs: 1000,
  headersTimeoutMs: 60_000,
  totalTimeoutMs: 60_000,
  keepAliveTimeoutMs: 4000,
  connections: 4,
  pollConnections: 4,
};
const present = {
  tag: upstreamTag(SETTINGS.url, SETTINGS.apiKey),
  poll: async () => ({ outcome: "gone" as const }),
};

function givenUpstreams(nowMs?: () => number) {
  const lines: string[] = [];
  const log = createLogger("info", { write: (line) => void lines.push(line) });
  const upstreams = new TaskUpstreams({ log, ...(nowMs ? { nowMs } : {}) });
  ends.push(upstreams.close);
  const at = (port: number) =>
    upstreams.of(upstreamTag(`http://127.0.0.1:${port}`, "key"), present, SETTINGS);
  const of: typeof upstreams.of = (...args) => upstreams.of(...args);
  const using: typeof upstreams.using = (...args) => upstreams.using(...args);
  return { of, using, at, close: upstreams.close, lines };
}

/** Answers nothing; counts the connections that are open. */
async function givenSilence() {
  const open = new Set<unknown>();
  const server = createServer(() => undefined);
  server.on("connection", (socket) => {
    open.add(socket);
    socket.on("close", () => open.delete(socket));
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  ends.push(() => {
    server.close();
    server.closeAllConnections();
  });
  return { port: (server.address() as AddressInfo).port, open };
}

test("the same former upstream is one client, as long as it is not forgotten", () => {
  const { at, of } = givenUpstreams();
  expect(at(1)).toBe(at(1));
  expect(at(1)).not.toBe(at(2));
  expect(of(undefined, present, SETTINGS)).toBe(present);
  expect(of(present.tag, present, SETTINGS)).toBe(present);
});

test("at most eight former upstreams have a client: the one that was asked longest ago goes, unless it is being asked", async () => {
  const { port, open } = await givenSilence();
  const { at } = givenUpstreams();
  void at(port).poll("t", { accountId: "a", requestId: "r" });
  await until(() => open.size === 1, "the question to arrive");
  const idle = Array.from({ length: 7 }, (_, nth) => at(nth + 1));
  expect(at(1)).toBe(idle[0]);
  const ninth = at(8);
  expect(at(8)).toBe(ninth);
  expect(at(1), "used a moment ago").toBe(idle[0]);
  expect(at(2), "unused for longest").not.toBe(idle[1]);
  expect(open.size, "the one that is being asked goes on").toBe(1);
});

test("while eight are being asked, a ninth is not, and its task is left for later", async () => {
  const { at, close } = givenUpstreams();
  const silent = await Promise.all(Array.from({ length: 8 }, givenSilence));
  const polls = silent.map(({ port }) => at(port).poll("t", { accountId: "a", requestId: "r" }));
  await until(() => silent.every(({ open }) => open.size === 1), "the questions to arrive");
  expect(await at(1).poll("t", { accountId: "a", requestId: "r" })).toMatchObject({ outcome: "overloaded" });
  await close();
  const outcomes = (await Promise.all(polls)).map(({ outcome }) => outcome);
  expect(new Set(outcomes), "closing gives up what is under way").toEqual(new Set(["failed"]));
  await until(() => silent.every(({ open }) => open.size === 0), "the connections to end");
});

test("tasks that cannot be asked for are logged once a minute for each upstream", async () => {
  let nowMs = 0;
  const { of, lines } = givenUpstreams(() => nowMs);
  const ask = (url: string) =>
    of(upstreamTag(url, "unknown"), present, SETTINGS).poll("t", { accountId: "a", requestId: "r" });
  for (let nth = 0; nth < 5; nth++) {
    expect(await ask("http://a.example.com")).toMatchObject({ outcome: "unroutable" });
    await ask("http://b.example.com/path-secret");
  }
  expect(lines).toHaveLength(2);
  expect(lines.join("")).not.toContain("path-secret");
  nowMs = 60_000;
  await ask("http://a.example.com");
  expect(lines).toHaveLength(3);
});

// Guarantee: upstream.tls_ca counts for the upstreams of earlier tasks, too.
test("a former upstream with a private certificate is asked, and only with its authority", async () => {
  const { key, cert } = selfSignedCertificate();
  const server = createTlsServer({ key, cert }, (_req, res) =>
    res.writeHead(404).end(JSON.stringify({ code: 404, msg: "no such task" })),
  );
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  ends.push(() => {
    server.close();
    server.closeAllConnections();
  });
  const { of } = givenUpstreams();
  const previousUrl = `https://localhost:${(server.address() as AddressInfo).port}`;
  const ask = (tlsCa: string | undefined) => {
    const settings = { ...SETTINGS, previousUrl, previousApiKey: "old", tlsCa };
    return of(upstreamTag(previousUrl, "old"), present, settings).poll("t", {
      accountId: "a",
      requestId: "r",
    });
  };
  expect(await ask(cert)).toEqual({ outcome: "gone" });
  expect(await ask(undefined)).toMatchObject({ outcome: "failed" });
});

// Guarantee: a change of address, certificates and words at run time leaves running tasks with what made them, or they would end as failed.
test("a former upstream is asked with the authorities and the words that it had", async () => {
  const { key, cert } = selfSignedCertificate();
  const data = { task_id: "t", status: "ready", video_url: "https://videos.example/t.mp4" };
  const server = createTlsServer({ key, cert }, (_req, res) =>
    res.end(JSON.stringify({ code: 200, msg: "success", data })),
  );
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  ends.push(() => {
    server.close();
    server.closeAllConnections();
  });
  const { of, using } = givenUpstreams();
  const url = `https://localhost:${(server.address() as AddressInfo).port}`;
  using(url, { tlsCa: cert, statuses: { ready: "completed" } });
  using(SETTINGS.url, {});
  const ask = (statuses: Record<string, TaskStatus>) =>
    of(upstreamTag(url, "key"), present, { ...SETTINGS, statuses }).poll("t", {
      accountId: "a",
      requestId: "r",
    });
  expect(await ask({})).toMatchObject({ outcome: "task", status: "completed" });
  expect(await ask({ ready: "failed" }), "its own words count more").toMatchObject({ status: "completed" });
  data.status = "halted";
  expect(await ask({ halted: "failed" }), "a word that is added later").toMatchObject({ status: "failed" });
});
