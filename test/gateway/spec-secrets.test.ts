import { createHash } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ERROR_NAMES } from "../../src/domain/errors.ts";
import { ROUTE_TEMPLATES } from "../../src/gateway/request-lifecycle.ts";
import { expectStatus, givenGateway, type TestGateway } from "../support/gateway.ts";
import { asking, BOAT, expectNobody, head, rawClient, revoke, TEXT_TO_VIDEO } from "./spec-stage.ts";

const CREDITS = "/api/v1/credits";

describe("too many unknown keys from one address", () => {
  let gateway: TestGateway;
  beforeAll(async () => {
    gateway = await givenGateway({
      config: { server: { unknownKeysPerMinute: 5, trustProxy: ["127.0.0.1"] } },
    });
  });
  afterAll(() => gateway.stop());
  const from = (address: string, key: string) =>
    asking(gateway)("GET", CREDITS, { key, headers: { "x-forwarded-for": address } });

  test("the sixth is 429 with code 2005 and retryAfter; good keys are let in all the same, from other addresses too", async () => {
    const known = await gateway.givenKey();
    const late = await gateway.givenKey();
    expectStatus(await from("203.0.113.1", known.key), 200);
    for (let n = 0; n < 5; n++) expect((await from("203.0.113.1", `sk_unknown${n}`)).status).toBe(401);
    const limited = await from("203.0.113.1", "sk_unknown");
    expectStatus(limited, 429);
    expect(limited.body.code).toBe(2005);
    expect(limited.body.retryAfter).toBeGreaterThan(50);
    expect(limited.body.retryAfter).toBeLessThanOrEqual(60);
    expectNobody(limited);
    expectStatus(await from("203.0.113.1", late.key), 200);
    expectStatus(await from("203.0.113.1", known.key), 200);
    expect((await from("203.0.113.1", "sk_unknown")).body.code).toBe(2005);
    expectStatus(await from("203.0.113.2", late.key), 200);
    expectStatus(await from("203.0.113.1", late.key), 200);
  });

  // Guarantee: pipelining does not get an attacker past the limit.
  test("of simultaneous attempts five are 401, and many good keys behind another address are all served", async () => {
    const good = await Promise.all(Array.from({ length: 20 }, () => gateway.givenKey()));
    const wrong = Array.from({ length: 60 }, (_, n) => from("203.0.113.30", `sk_unknown${n}`));
    const codes = (await Promise.all(wrong)).map(({ body }) => body.code);
    expect(codes.toSorted((a, b) => a - b)).toEqual([...Array(5).fill(401), ...Array(55).fill(2005)]);
    const served = await Promise.all(good.map(({ key }) => from("203.0.113.31", key)));
    expect(served.map(({ status }) => status)).toEqual(Array(20).fill(200));
  });

  test("what a client writes into X-Forwarded-For itself does not give it another address", async () => {
    for (let n = 0; n < 5; n++) await from(`198.51.100.${n}, 203.0.113.9`, `sk_unknown${n}`);
    expect((await from("198.51.100.77, 203.0.113.9", "sk_unknown")).body.code).toBe(2005);
  });

  test("one customer's IPv6 block is one address", async () => {
    for (let n = 0; n < 5; n++) await from(`2001:db8:1:2:${n}::1`, `sk_unknown${n}`);
    expect((await from("2001:db8:1:2:ffff::9", "sk_unknown")).body.code).toBe(2005);
    expectStatus(await from("2001:db8:1:3::1", "sk_unknown"), 401);
  });

  test("a revoked key that goes on trying is an unknown key", async () => {
    const issued = await gateway.givenKey();
    expectStatus(await from("203.0.113.20", issued.key), 200);
    await revoke(gateway, issued);
    for (let n = 0; n < 5; n++) expect((await from("203.0.113.20", issued.key)).status).toBe(401);
    expect((await from("203.0.113.20", issued.key)).body.code).toBe(2005);
  });
});

describe("after every kind of request", () => {
  let gateway: TestGateway;
  let key: string;
  let metrics: string;
  let logs: string;
  let crashed: string;
  let pages = "";
  const HOSTILE = [
    "/api/v1/tasks/SECRETTASK",
    "/SECRETPATH",
    "/api/v1/SECRETPATH?x=SECRETQUERY",
    "/%53ECRETPATH",
  ];
  let taskId: string;
  let lineOfPoll: Record<string, unknown>;

  beforeAll(async () => {
    gateway = await givenGateway({ behaviour: { durationMs: 0 } });
    const ask = asking(gateway);
    const issued = await gateway.givenKey();
    key = issued.key;
    const body = { prompt: "SECRETPROMPT" };
    const { data } = (await ask("POST", TEXT_TO_VIDEO, { key, body })).body;
    taskId = data.task_id;
    const { headers: polled } = await ask("GET", `/api/v1/tasks/${taskId}`, { key });
    const ofPoll = ({ request_id: id, route }: Record<string, unknown>) =>
      id === polled.get("x-request-id") && route !== undefined;
    lineOfPoll = gateway.logs.map((line) => JSON.parse(line)).find(ofPoll);
    await ask("GET", CREDITS, { key });
    // A key where a task id belongs: it looks like one.
    await ask("GET", `/api/v1/tasks/${key}`, { key });
    for (const path of HOSTILE)
      for (const method of ["GET", "POST", "DELETE", "PROPFIND"]) {
        await ask(method, path, { key });
        await ask(method, path, { key: "sk_SECRETUNKNOWN" });
      }
    for (const steering of ["status=401", "reset", "garbage", "status=422 message=x"])
      await ask("POST", TEXT_TO_VIDEO, { key, body: { prompt: `SECRETPROMPT [sandbox: ${steering}]` } });
    await ask("POST", TEXT_TO_VIDEO, { key, body: { SECRETPARAMETER: 1 } });
    await ask("GET", CREDITS, { headers: { authorization: `Basic ${key}` } });
    await ask("POST", TEXT_TO_VIDEO, {
      key,
      body: BOAT,
      headers: { "idempotency-key": "SECRETIDEMPOTENCY" },
    });
    for (const bytes of [
      head("GET /SECRETPATH HTTP/1.1", "Host: a", "Host: b", `Authorization: Bearer ${key}`),
      `SECRETGARBAGE Authorization: Bearer ${key}\r\n\r\n`,
      head(`GET http://SECRETHOST/ HTTP/1.1`, "Host: a", `Authorization: Bearer ${key}`),
    ]) {
      const raw = await rawClient(gateway.url);
      raw.write(bytes);
      expectStatus(await raw.answer(), 400);
      raw.end();
    }
    // A client that writes its key where none belongs.
    const headers = { "x-request-id": key, traceparent: key, tracestate: `a=${key}` };
    await ask("GET", CREDITS, { key, headers });
    // A handler that crashes with the key in its hands.
    const crashing = await givenGateway({ config: { priceLists: [{}] as never } });
    expectStatus(await asking(crashing)("POST", TEXT_TO_VIDEO, { key, body: BOAT }), 500);
    await crashing.stop();
    crashed = crashing.logs.join("");
    await revoke(gateway, issued);
    await ask("GET", CREDITS, { key });
    for (const page of [
      "livez",
      "readyz",
      "config",
      "openapi.json",
      "log-level",
      "console/",
      "console/main.js",
    ])
      pages += await (await fetch(`${gateway.adminUrl}/${page}`)).text();
    metrics = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
    logs = gateway.logs.join("");
  });
  afterAll(() => gateway.stop());

  test("neither logs, metrics nor the admin's pages hold a key, its hash or the upstream's secret", () => {
    expect(logs).toContain("request_id");
    expect(metrics).toContain("tollgate_requests_total");
    const digest = createHash("sha256").update(key).digest("hex");
    expect(crashed).toContain("internal fault");
    expect(pages).toContain("openapi");
    for (const text of [logs, crashed, metrics, pages])
      for (const secret of [key, key.slice(3), digest, "SECRETUNKNOWN", "upstream-secret"])
        expect(text.includes(secret)).toBe(false);
  });

  test("neither holds what customers write: prompts, paths, queries, idempotency keys", () => {
    for (const text of [logs, metrics])
      for (const own of [
        "SECRETPROMPT",
        "SECRETTASK",
        "SECRETPATH",
        "SECRETQUERY",
        "SECRETGARBAGE",
        "SECRETHOST",
        "SECRETIDEMPOTENCY",
      ])
        expect(text.includes(own), own).toBe(false);
  });

  test("a task that the gateway knows is named in the line of its poll", () => {
    expect(lineOfPoll).toMatchObject({ level: "debug", status: 200, task_id: taskId });
  });

  test("the labels of the metrics are closed sets", () => {
    const OUTCOMES = [...ERROR_NAMES, "ok", "cached", "replayed", "unmetered", "client_gone"];
    const samples = metrics.split("\n").filter((line) => line.startsWith("tollgate_requests_total{"));
    expect(samples.length).toBeGreaterThan(5);
    for (const sample of samples) {
      const labels = Object.fromEntries(
        [...sample.matchAll(/(\w+)="([^"]*)"/g)].map(([, name, value]) => [name!, value]),
      );
      expect(Object.keys(labels).sort()).toEqual(["outcome", "route", "status"]);
      expect(ROUTE_TEMPLATES).toContain(labels.route);
      expect(OUTCOMES).toContain(labels.outcome);
      expect(labels.status).toMatch(/^[2-5]\d\d$/);
    }
    expect(metrics).not.toMatch(/SECRET|task_[0-9a-f-]{30}|acc_|key_/);
  });

  test("each request has one log line, with its id, route template and outcome", () => {
    const lines = gateway.logs.map((line) => JSON.parse(line)).filter((line) => line.route !== undefined);
    const ids = lines.map((line) => line.request_id);
    expect(new Set(ids).size).toBe(ids.length);
    for (const line of lines) {
      expect(ROUTE_TEMPLATES).toContain(line.route);
      expect(line).toMatchObject({
        status: expect.any(Number),
        outcome: expect.any(String),
        duration_ms: expect.any(Number),
      });
    }
  });
});

test("the admin's pages are not on the public port, and the customers' not on the admin's", async () => {
  const gateway = await givenGateway();
  const { key } = await gateway.givenKey();
  for (const page of ["/metrics", "/livez", "/readyz", "/openapi.json"]) {
    expectStatus(await asking(gateway)("GET", page, { key }), 404);
    expectStatus(await asking(gateway)("GET", page), 404);
    expect((await fetch(gateway.adminUrl + page)).status).toBe(200);
  }
  expect(
    (await fetch(gateway.adminUrl + CREDITS, { headers: { authorization: `Bearer ${key}` } })).status,
  ).toBe(404);
  await gateway.stop();
});
