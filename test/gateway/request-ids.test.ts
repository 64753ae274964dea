import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectStatus, givenGateway, type TestGateway } from "../support/gateway.ts";
import { BOAT, conforming, TEXT_TO_VIDEO } from "./spec-stage.ts";

describe("X-Request-Id of the client", () => {
  let gateway: TestGateway;
  let key: string;
  beforeAll(async () => {
    gateway = await givenGateway();
    ({ key } = await gateway.givenKey({ credits: 30 }));
  });
  afterAll(() => gateway.stop());
  const ask = (id: string, body: object = BOAT) =>
    gateway.request("POST", TEXT_TO_VIDEO, { key, body, headers: { "x-request-id": id } });

  test("the same one twice is two admissions, two charges and two names in the ledger", async () => {
    const replies = [await ask("order-1.a_B"), await ask("order-1.a_B")];
    for (const reply of replies) {
      expect(conforming(reply).status).toBe(200);
      expect(reply.headers.get("x-request-id")).toBe("order-1.a_B");
    }
    const ours = replies.map(({ headers }) => headers.get("x-gateway-request-id"));
    expect(ours[0]).toMatch(/^req_/);
    expect(new Set(ours).size).toBe(2);
    expect(new Set(replies.map(({ body }) => body.data.task_id)).size).toBe(2);
    const { data } = (await gateway.request("GET", "/api/v1/credits", { key })).body;
    expect(data.balance).toBe(10);
    // The id given to support leads to the line, and the line to the ledger's name.
    const lines = gateway.logs.map((line) => JSON.parse(line));
    const found = lines.filter((line) => line.client_request_id === "order-1.a_B");
    expect(found.map(({ request_id }) => request_id)).toEqual(ours);
  });

  test("an error names it in the header and in the body", async () => {
    const reply = conforming(await ask("order-2", {}));
    expectStatus(reply, 400);
    expect(reply.headers.get("x-request-id")).toBe("order-2");
    expect(reply.body.request_id).toBe("order-2");
  });

  test.each([
    "a b",
    "x".repeat(65),
    "req_mi8w3k1q5f0c2a9d000001",
    "sk_abc",
    "id-sk_abc",
    "tgm_abc",
    "id-TGM_abc",
    'a"b',
    "a,b",
    "\u00e9",
  ])("%j is not taken: ours is answered", async (id) => {
    const reply = conforming(await ask(id, {}));
    expect(reply.headers.get("x-request-id")).toMatch(/^req_[0-9a-z]+$/);
    expect(reply.body.request_id).toBe(reply.headers.get("x-request-id"));
    expect(reply.headers.has("x-gateway-request-id")).toBe(false);
  });
});

describe("/log-level on the admin port", () => {
  const TOKEN = "a-token-of-16-letters";
  const put = (gateway: TestGateway, body: string, headers: Record<string, string> = {}) =>
    fetch(`${gateway.adminUrl}/log-level`, { method: "PUT", body, headers });

  test("sets the level while running, and says so in the log", async () => {
    const gateway = await givenGateway();
    const { key } = await gateway.givenKey();
    /** How many lines a request leaves: those that bear its id, for the gateway logs other work meanwhile. */
    const lines = async (): Promise<number> => {
      const { headers } = await gateway.request("GET", "/api/v1/credits", { key });
      return gateway.logs.filter((line) => line.includes(headers.get("x-request-id")!)).length;
    };
    expect(await lines()).toBe(1);
    expectStatus(await put(gateway, "warn"), 200);
    expect(await lines()).toBe(0);
    expect(await (await fetch(`${gateway.adminUrl}/log-level`)).json()).toEqual({ level: "warn" });
    expectStatus(await put(gateway, '{"level":"debug"}'), 200);
    expect(await lines()).toBe(1);
    for (const bad of ["loud", "", '{"level":1}', "x".repeat(1000)]) {
      expectStatus(await put(gateway, bad), 400);
    }
    expectStatus(await put(gateway, "silent", { origin: "https://elsewhere.example" }), 403);
    expect((await fetch(`${gateway.adminUrl}/log-level`, { method: "POST" })).status).toBe(405);
    const texts = gateway.logs.filter((line) => line.includes('"audit":true'));
    expect(texts.map((text) => JSON.parse(text))).toMatchObject([
      { level: "info", was: "debug", now: "warn" },
      { level: "info", was: "warn", now: "debug" },
      { level: "info", msg: "sign-in refused", reason: "other_site" },
    ]);
    // A name that stands twice means to each reader of JSON what it likes.
    for (const text of texts) expect(text.match(/"level":/g)).toHaveLength(1);
    await gateway.stop();
  });

  test("needs the token where there is one", async () => {
    const gateway = await givenGateway({ config: { admin: { token: TOKEN } } });
    expectStatus(await put(gateway, "silent"), 401);
    expectStatus(await put(gateway, "silent", { authorization: "Bearer wrong" }), 401);
    const headers = { authorization: `Bearer ${TOKEN}` };
    expect((await fetch(`${gateway.adminUrl}/log-level`)).status).toBe(401);
    expect((await fetch(`${gateway.adminUrl}/log-level`, { headers })).status).toBe(200);
    expectStatus(await put(gateway, "warn", headers), 200);
    await gateway.stop();
  });

  // Guarantee: whoever guesses has ten tries a minute for the whole port, not ten at each of its doors.
  test("a wrong token here counts at the management API, too", async () => {
    const gateway = await givenGateway({ config: { admin: { token: TOKEN } } });
    const headers = { authorization: "Bearer wrong" };
    for (let n = 0; n < 5; n++) {
      expectStatus(await put(gateway, "silent", headers), 401);
      expect((await fetch(`${gateway.adminUrl}/manage/v1/live`, { headers })).status).toBe(401);
    }
    expectStatus(await put(gateway, "silent", headers), 429);
    expect((await fetch(`${gateway.adminUrl}/manage/v1/live`, { headers })).status).toBe(429);
    await gateway.stop();
  });
});

test("a request that is slow by the gateway's own time says where it went; the upstream's time does not count", async () => {
  const slow = async (slowRequestMs: number) => {
    const gateway = await givenGateway({
      config: { log: { slowRequestMs } },
      behaviour: { delayMs: 150 },
    });
    const { key } = await gateway.givenKey();
    expectStatus(await gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT }), 200);
    await gateway.stop();
    return gateway.logs.map((line) => JSON.parse(line)).filter(({ msg }) => msg === "slow request");
  };
  const [line] = await slow(0.001);
  expect(line).toMatchObject({ level: "warn", route: TEXT_TO_VIDEO, request_id: expect.any(String) });
  // A timer of 150 ms may go off a millisecond before that.
  expect(line.upstream_ms).toBeGreaterThan(140);
  expect(line.own_ms).toBeCloseTo(line.duration_ms - line.upstream_ms - line.body_ms, 0);
  expect(line.store_ms).toBeGreaterThan(0);
  expect(line.own_ms).toBeGreaterThan(line.store_ms - 1);
  expect(await slow(0)).toEqual([]);
});
