import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectStatus, givenGateway, limitsOf, type TestGateway, until } from "../support/gateway.ts";
import { loadConfig } from "../support/load-config.ts";
import { asking, BOAT, PRO_TEXT_TO_VIDEO, recharge, TEXT_TO_VIDEO } from "./spec-stage.ts";

const IMAGE = "https://images.example.com/cat.png";
const VIDEO = "https://videos.example.com/v.mp4";
const board = (nFrames: string) => ({ nFrames, shots: [{ Scene: "a boat", duration: Number(nFrames) }] });

/** Every cell of both price sets: endpoint, body, what goes upstream beyond the body, reference, overview. */
const CELLS: [endpoint: string, body: object, defaults: object, reference: number, overview: number][] = [
  ["gen2/text-to-video", BOAT, { aspectRatio: "16:9" }, 10, 100],
  ["gen2/image-to-video", { imageUrl: IMAGE }, {}, 10, 100],
  ["gen2/watermark-remove", { videoUrl: VIDEO }, {}, 10, 50],
  ...(["gen2-pro/text-to-video", "gen2-pro/image-to-video"] as const).flatMap((endpoint) => {
    const base = endpoint.endsWith("text-to-video") ? BOAT : { imageUrl: IMAGE };
    const cell = (body: object, defaults: object, reference: number): (typeof CELLS)[number] => [
      endpoint,
      { ...base, ...body },
      defaults,
      reference,
      200,
    ];
    return [
      cell({}, { duration: 10, quality: "standard" }, 150),
      cell({ duration: 10, quality: "standard" }, {}, 150),
      cell({ duration: 10, quality: "high" }, {}, 330),
      cell({ duration: 15, quality: "standard" }, {}, 270),
      cell({ duration: 15, quality: "high" }, {}, 630),
      cell({ quality: "high" }, { duration: 10 }, 330),
      cell({ duration: 15 }, { quality: "standard" }, 270),
    ];
  }),
  ["gen2-pro/storyboard", board("10"), { aspectRatio: "landscape" }, 150, 150],
  ["gen2-pro/storyboard", board("15"), { aspectRatio: "landscape" }, 270, 270],
  ["gen2-pro/storyboard", board("25"), { aspectRatio: "landscape" }, 270, 270],
];

describe("each generation costs exactly its price, and goes upstream as it was priced", () => {
  const gateways: Record<string, TestGateway> = {};
  beforeAll(async () => {
    gateways.reference = await givenGateway();
    const folder = await mkdtemp(path.join(tmpdir(), "tollgate-prices-"));
    const file = path.join(folder, "tollgate.yaml");
    await writeFile(file, `prices: ${path.resolve("config/prices/overview.yaml")}`);
    const { priceLists } = loadConfig({ env: {}, file });
    await rm(folder, { recursive: true });
    gateways.overview = await givenGateway({ config: { priceLists } });
  });
  afterAll(async () => {
    for (const gateway of Object.values(gateways)) await gateway.stop();
  });

  test("the harness runs the default price set", () => {
    expect(gateways.reference!.config.priceLists).toEqual(loadConfig({ env: {} }).priceLists);
  });

  for (const set of ["reference", "overview"]) {
    test.each(CELLS)(`${set}: %s with %j`, async (endpoint, body, defaults, reference, overview) => {
      const gateway = gateways[set]!;
      const ask = asking(gateway);
      const price = set === "reference" ? reference : overview;
      const issued = await gateway.givenKey({ credits: price * 2 - 1 });
      const requestPath = `/api/v1/${endpoint}`;
      const reply = await ask("POST", requestPath, { key: issued.key, body });
      expectStatus(reply, 200);
      expect(reply.body.data).toEqual({
        task_id: expect.stringMatching(/^[\w.~-]{1,200}$/),
        status: "pending",
      });
      expect(limitsOf(reply)).toMatchObject({ remaining: 999, active: 1 });

      const upstream = gateway.generator.requests.find(
        (request) => request.taskId === reply.body.data.task_id,
      )!;
      expect(upstream).toMatchObject({ method: "POST", path: requestPath, complete: true });
      expect(JSON.parse(upstream.body)).toEqual({ ...body, ...defaults });
      expect(upstream.headers.authorization).toBe("Bearer upstream-secret");
      expect(upstream.headers["content-type"]).toBe("application/json");
      expect(upstream.headers["idempotency-key"]).toBe(reply.headers.get("x-request-id"));
      expect(JSON.stringify(upstream.headers)).not.toContain(issued.key);

      // One credit short of a second one: exactly the price is gone.
      const refused = await ask("POST", requestPath, { key: issued.key, body });
      expectStatus(refused, 402);
      expect(refused.body.error).toMatch(new RegExp(`\\b${price}\\b.*\\b${price - 1}\\b`));
    });
  }
});

describe("GET /credits", () => {
  let gateway: TestGateway;
  let ask: ReturnType<typeof asking>;
  beforeAll(async () => {
    gateway = await givenGateway({ config: { tasks: { cacheMs: 0 } }, behaviour: { durationMs: 0 } });
    ask = asking(gateway);
  });
  afterAll(() => gateway.stop());

  const ISO = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  const ID = expect.stringMatching(/\S/);

  test("a new account: the shape of `CreditAccount`, to the field", async () => {
    const issued = await gateway.givenKey({
      credits: 0,
      limits: { rate_limit: 60, max_concurrent: 5, daily_limit: 1000 },
    });
    const reply = await ask("GET", "/api/v1/credits", { key: issued.key });
    expect(reply.body).toEqual({
      code: 200,
      msg: "success",
      data: {
        balance: 0,
        total_used: 0,
        total_requests: 0,
        tier: "standard",
        limits: { rate_limit: 60, max_concurrent: 5, daily_limit: 1000 },
        recent_transactions: [],
      },
    });
  });

  test("a full story: recharge, consume, refund, most recent first, each with the fields of a transaction and no more", async () => {
    const issued = await gateway.givenKey({ credits: 1000 });
    const { key } = issued;
    await ask("POST", TEXT_TO_VIDEO, { key, body: BOAT });
    const failing = await ask("POST", PRO_TEXT_TO_VIDEO, {
      key,
      body: { prompt: "[sandbox: fail]", quality: "high" },
    });
    const taskId = failing.body.data.task_id;
    const poll = await ask("GET", `/api/v1/tasks/${taskId}`, { key });
    expect(poll.body.data.status).toBe("failed");
    await recharge(gateway, issued, 500);
    const { data } = (await ask("GET", "/api/v1/credits", { key })).body;
    expect(data).toMatchObject({ balance: 1490, total_used: 10, total_requests: 2 });
    expect(data.recent_transactions).toEqual([
      { id: ID, type: "recharge", amount: 500, balance_after: 1490, created_at: ISO },
      {
        id: ID,
        type: "recharge",
        amount: 330,
        balance_after: 990,
        reason: "refund",
        task_id: taskId,
        created_at: ISO,
      },
      {
        id: ID,
        type: "consume",
        amount: -330,
        balance_after: 660,
        endpoint: PRO_TEXT_TO_VIDEO,
        created_at: ISO,
      },
      { id: ID, type: "consume", amount: -10, balance_after: 990, endpoint: TEXT_TO_VIDEO, created_at: ISO },
      { id: ID, type: "recharge", amount: 1000, balance_after: 1000, created_at: ISO },
    ]);
    const ids = data.recent_transactions.map((entry: { id: string }) => entry.id);
    expect(new Set(ids).size).toBe(5);
    for (const { created_at } of data.recent_transactions)
      expect(Math.abs(Date.parse(created_at) - Date.now())).toBeLessThan(60_000);
  });

  test("of many transactions the ten most recent are shown, and they chain", async () => {
    const { key } = await gateway.givenKey({ credits: 1000 });
    for (let n = 0; n < 12; n++) await ask("POST", TEXT_TO_VIDEO, { key, body: BOAT });
    const { data } = (await ask("GET", "/api/v1/credits", { key })).body;
    expect(data).toMatchObject({ balance: 880, total_used: 120, total_requests: 12 });
    const balances = data.recent_transactions.map((entry: { balance_after: number }) => entry.balance_after);
    expect(balances).toEqual([880, 890, 900, 910, 920, 930, 940, 950, 960, 970]);
  });

  test("the balance is what can be spent: a request under way is missing from it, though not yet a transaction", async () => {
    const { key } = await gateway.givenKey({ credits: 1000 });
    const sentBefore = gateway.generator.requests.length;
    const slow = ask("POST", TEXT_TO_VIDEO, { key, body: { prompt: "[sandbox: delay=3s]" } });
    await until(() => gateway.generator.requests.length === sentBefore + 1, "the upstream request");
    const during = await ask("GET", "/api/v1/credits", { key });
    expect(during.body.data).toMatchObject({ balance: 990, total_used: 0, total_requests: 1 });
    expect(during.body.data.recent_transactions).toHaveLength(1);
    expect(limitsOf(during)).toMatchObject({ active: 1 });
    expectStatus(await slow, 200);
    expect((await ask("GET", "/api/v1/credits", { key })).body.data).toMatchObject({
      balance: 990,
      total_used: 10,
    });
  });

  test("two keys of one account share balance and transactions; limits are each key's own", async () => {
    const first = await gateway.givenKey({ credits: 1000, limits: { rate_limit: 5, max_concurrent: 2 } });
    const second = await gateway.givenKey({
      accountId: first.accountId,
      credits: 0,
      limits: { rate_limit: 7, max_concurrent: 3 },
    });
    await ask("POST", TEXT_TO_VIDEO, { key: first.key, body: BOAT });
    const reply = await ask("GET", "/api/v1/credits", { key: second.key });
    expect(reply.body.data).toMatchObject({
      balance: 990,
      total_requests: 1,
      limits: { rate_limit: 7, max_concurrent: 3 },
    });
    expect(limitsOf(reply)).toMatchObject({ limit: 7, remaining: 7, maxConcurrent: 3, active: 0 });
  });
});
