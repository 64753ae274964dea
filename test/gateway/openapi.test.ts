import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Reply, RequestOptions } from "../support/gateway.ts";
import { expectStatus } from "../support/gateway.ts";
import { shapeOf } from "../support/openapi.ts";
import { RECIPES } from "./openapi-recipes.ts";
import { type ApiStage, givenApiStage, sendForm } from "./openapi-stage.ts";
import { BOAT, TEXT_TO_VIDEO } from "./spec-stage.ts";

// Guarantee: whatever docs/openapi.json says, a gateway does; each of its examples is run.

let stage: ApiStage;
beforeAll(async () => {
  stage = await givenApiStage();
});
afterAll(() => stage.stop());

const FILE = join(import.meta.dirname, "../../docs/openapi.json");

test("the admin port serves the description that is shipped", () => {
  expect(stage.served.status).toBe(200);
  expect(stage.served.headers.get("content-type")).toBe("application/json; charset=utf-8");
  expect(stage.document).toEqual(JSON.parse(readFileSync(FILE, "utf8")));
});

/** Waits that depend on when the request comes; the others are exactly as documented. */
const WAITS_VARY = new Set(["rate_limited", "daily_limited", "too_many_unknown_keys", "outcomes_unknown"]);

/** A body without what differs from one answer to the next. */
function comparable(body: Record<string, unknown>, example: string): Record<string, unknown> {
  const { request_id, retryAfter, ...rest } = body;
  const wait = WAITS_VARY.has(example) ? typeof retryAfter : retryAfter;
  return { ...rest, request_id: typeof request_id, retryAfter: wait };
}

describe("each documented error", () => {
  test.each(RECIPES)("$answer, $example", async ({ answer, example, operationId, provoke }) => {
    const reply = await provoke(stage);
    const documented = stage.description.hold(operationId, reply);
    expect(documented.name).toBe(answer);
    const { value } = documented.examples[example]!;
    expect(comparable(reply.body, example)).toEqual(comparable(value as Record<string, unknown>, example));
    expect(reply.headers.get("retry-after")).toBe(reply.body.retryAfter?.toString() ?? null);
  });

  test("is provoked here, and no other", () => {
    const documented = stage.description.operations.flatMap(({ answers }) =>
      Object.entries(answers).flatMap(([status, { name, examples }]) =>
        status === "200" ? [] : Object.keys(examples).map((example) => `${name} ${example}`),
      ),
    );
    const provoked = RECIPES.map(({ answer, example }) => `${answer} ${example}`);
    expect([...new Set(provoked)].sort()).toEqual([...new Set(documented)].sort());
  });

  test("has a stand-in where the generator's own status is one that is listed", async () => {
    const { key } = await stage.main.givenKey();
    for (const status of [400, 409, 413, 415, 422, 431]) {
      const reply = await stage.during({ status, code: 1001 }, () => generate(key));
      expectStatus(reply, status);
      expect(reply.body.code).toBe(1001);
      stage.description.hold("gen2TextToVideo", reply);
    }
  });
});

const generate = (key: string, body: unknown = BOAT, headers = {}) =>
  stage.main.request("POST", TEXT_TO_VIDEO, { key, body, headers });

/** The 200 of an operation, held against its documentation and against one of its examples. */
function holdSuccess(operationId: string, reply: Reply, example: string): void {
  expect(reply.body).toMatchObject({ code: 200 });
  const documented = stage.description.hold(operationId, reply);
  expect(shapeOf(reply.body)).toEqual(shapeOf(documented.examples[example]!.value));
}

describe("each documented request", () => {
  test("of the ten operations succeeds", async () => {
    const { key } = await stage.main.givenKey({ credits: 10_000 });
    let sent = 0;
    for (const { operationId, method, path, requestBody, answers } of stage.description.operations) {
      const [answer = ""] = Object.keys(answers["200"]!.examples);
      for (const [type, { examples }] of Object.entries(requestBody?.content ?? {})) {
        for (const { value } of Object.values(examples)) {
          const form = value as { file: string };
          const request: RequestOptions = { key, body: value };
          const reply = await (type === "multipart/form-data"
            ? sendForm(stage.main, key, form.file)
            : stage.main.request(method, path, request));
          holdSuccess(operationId, reply, answer);
          sent++;
        }
      }
    }
    expect(sent).toBeGreaterThanOrEqual(12);
  });

  test.each(["gen2TextToVideo", "gen2ProStoryboard", "getTask", "uploadImage", "getCredits"])(
    "%s without a key is refused as documented",
    async (operationId) => {
      const { method, path } = stage.description.find(operationId);
      const reply = await stage.main.request(method, path.replace("{taskId}", "task_1"));
      expect(stage.description.hold(operationId, reply).name).toBe("Unauthorized");
    },
  );
});

describe("each documented success", () => {
  test.each([
    ["pending", { startDelayMs: 60_000, durationMs: 120_000 }],
    ["processing", { startDelayMs: 0, durationMs: 120_000 }],
    ["completed", { startDelayMs: 0, durationMs: 0 }],
    ["failed", { startDelayMs: 0, durationMs: 0, failRatio: 1 }],
  ])("a task that is %s", async (example, behaviour) => {
    const { key } = await stage.main.givenKey();
    await stage.during(behaviour, async () => {
      const { body } = await generate(key);
      const reply = await stage.main.request("GET", `/api/v1/tasks/${body.data.task_id}`, { key });
      expect(reply.body.data.status).toBe(example);
      holdSuccess("getTask", reply, example);
    });
  });

  test("an account with a recharge, a charge and a refund", async () => {
    const { key } = await stage.main.givenKey();
    await generate(key);
    await stage.during({ durationMs: 0, failRatio: 1 }, async () => {
      const { body } = await generate(key);
      await stage.main.request("GET", `/api/v1/tasks/${body.data.task_id}`, { key });
    });
    const reply = await stage.main.request("GET", "/api/v1/credits", { key });
    holdSuccess("getCredits", reply, "account");
    expect(reply.body.data).toMatchObject({ balance: 990, total_used: 10, total_requests: 2 });
  });

  test("the first answer again, for the same Idempotency-Key", async () => {
    const { key } = await stage.main.givenKey();
    const headers = { "idempotency-key": "order-1734-video-1" };
    const first = await generate(key, BOAT, headers);
    expect(first.headers.has("idempotency-replayed")).toBe(false);
    const again = await generate(key, BOAT, headers);
    expect(again.headers.get("idempotency-replayed")).toBe("true");
    expect(again.body).toEqual(first.body);
    holdSuccess("gen2TextToVideo", again, "accepted");
  });

  test("while the store is away and requests are let through", async () => {
    const { lenient, main } = stage;
    const { key } = await main.givenKey();
    const ask = (method: string, path: string, body?: unknown) =>
      lenient.request(method, path, body === undefined ? { key } : { key, body });
    const { body } = await ask("POST", TEXT_TO_VIDEO, BOAT);
    await lenient.loseStore();
    const taskPath = `/api/v1/tasks/${body.data.task_id}`;
    const answers: [string, Reply][] = [
      ["gen2TextToVideo", await ask("POST", TEXT_TO_VIDEO, BOAT)],
      ["gen2TextToVideo", await ask("POST", TEXT_TO_VIDEO, {})],
      ["getTask", await ask("GET", taskPath)],
      ["uploadImage", await sendForm(lenient, key, "GIF89a")],
      ["getCredits", await ask("DELETE", "/api/v1/credits")],
    ];
    for (const [operationId, reply] of answers) {
      expect(reply.headers.get("x-gateway-degraded"), operationId).toBe("store");
      stage.description.hold(operationId, reply);
    }
    expect(answers.map(([, { status }]) => status)).toEqual([200, 400, 200, 200, 405]);
    const credits = await ask("GET", "/api/v1/credits");
    expect(stage.description.hold("getCredits", credits).name).toBe("ServiceUnavailable");
  });
});

test("an answer that is not as documented is found out", async () => {
  const { key } = await stage.main.givenKey();
  const reply = await generate(key);
  const { hold } = stage.description;
  const changed = (body: unknown, headers = reply.headers) => ({ ...reply, body, headers });
  const without = new Headers(reply.headers);
  without.delete("x-ratelimit-reset");
  const beyond = new Headers({ ...Object.fromEntries(reply.headers), "x-surprise": "1" });
  const describing = (other: Reply) => () => hold("gen2TextToVideo", other);
  expect(describing(reply)).not.toThrow();
  expect(describing(changed({ ...reply.body, msg: "ok" }))).toThrow();
  expect(describing(changed({ ...reply.body, data: { status: "pending" } }))).toThrow();
  expect(describing(changed(reply.body, without))).toThrow("X-RateLimit-Reset");
  expect(describing(changed(reply.body, beyond))).toThrow("x-surprise");
});
