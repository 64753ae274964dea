import { Value } from "typebox/value";
import { afterAll, beforeAll, expect, test } from "vitest";
import { BODY_EXAMPLES } from "../../src/admin/api/examples.ts";
import type { Route } from "../../src/admin/api/route.ts";
import { ROUTES } from "../../src/admin/api/routes.ts";
import { adminOpenApi } from "../../tools/management-openapi.ts";
import { expectStatus } from "../support/gateway.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { givenManageStage, type ManageStage } from "./manage-stage.ts";
import { BOAT, TEXT_TO_VIDEO } from "./spec-stage.ts";

// Guarantee: every operation of docs/management.openapi.json works as its example says, and answers what it describes.

let redis: TestRedis;
let stage: ManageStage;
/** Ids in the examples' paths. */
const ids: Record<string, string> = { account: "acme", month: "2026-10" };
beforeAll(async () => {
  // The examples' names must be free.
  redis = await givenRedis();
  stage = await givenManageStage({ redisUrl: redis.url });
});
afterAll(async () => {
  await stage.stop();
  await redis.stop();
});

const FIRST = ["createAccount", "grantCredits", "createKey", "createToken", "readAccount"];
/** These end what others need. */
const LAST = ["refundTask", "rotateKey", "revokeKey", "revokeToken", "changeAccount"];
const named = (name: string): Route => ROUTES.find((route) => route.name === name)!;
const others = ROUTES.filter(({ name }) => !FIRST.includes(name) && !LAST.includes(name));

/** Query parameters that a call must have. */
const QUERIES = { q: "acme", month: "2026-10" };

async function run({ name, method, path, answers, needsIdempotencyKey, query }: Route) {
  const target = path.replaceAll(/\{(\w+)\}/g, (_, part: string) => ids[part] ?? "");
  const required = query.required?.map((part) => `${part}=${QUERIES[part as "q"]}`) ?? [];
  const search = required.length === 0 ? "" : `?${required.join("&")}`;
  const reply = await stage.manage(method, target + search, {
    ...(BODY_EXAMPLES[name] && { body: BODY_EXAMPLES[name] }),
    headers: needsIdempotencyKey ? { "Idempotency-Key": name } : {},
  });
  const expected = 201 in answers ? 201 : 200;
  expectStatus(reply, expected, name);
  const schema = answers[expected]!.schema;
  expect([...Value.Errors(schema, reply.body)], `${name} ${JSON.stringify(reply.body)}`).toEqual([]);
  return reply.body;
}

test.each(FIRST)("the example of %s", async (name) => {
  const body = await run(named(name));
  if (name === "createKey") {
    ids.key = body.key_id;
    const made = await stage.gateway.request("POST", TEXT_TO_VIDEO, { key: body.key, body: BOAT });
    expectStatus(made, 200);
    ids.task = made.body.data.task_id;
    await expect
      .poll(
        async () => {
          await stage.gateway.request("GET", `/api/v1/tasks/${ids.task}`, { key: body.key });
          return (await stage.manage("GET", `/tasks/${ids.task}`)).body.status;
        },
        { timeout: 60_000, interval: 500 },
      )
      .toBe("completed");
  }
  if (name === "createToken") ids.token = body.token_id;
});

test.each(others.map(({ name }) => name))("the example of %s", async (name) => {
  await run(named(name));
});

test.each(LAST)("the example of %s", async (name) => {
  await run(named(name));
});

test("the description that is served is the one that is shipped", async () => {
  const { body } = await stage.manage("GET", "/openapi.json");
  expect(body).toEqual(JSON.parse(await adminOpenApi.text()));
});
