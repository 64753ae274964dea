import { afterEach, expect, inject, test } from "vitest";
import { expectStatus, givenGateway, type TestGateway, until } from "../support/gateway.ts";
import { givenRedis } from "../support/store-stage.ts";

const undo: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

async function givenGatewayAt(redisUrl: string): Promise<TestGateway> {
  const gateway = await givenGateway({ redisUrl });
  undo.push(() => gateway.stop());
  return gateway;
}

/** Why the store is unusable, as the log has said so far. */
const reasons = ({ logs }: TestGateway): string[] =>
  logs.flatMap((line) => {
    const { msg, why } = JSON.parse(line) as { msg: string; why?: string };
    return msg.startsWith("the store is unusable") ? [why ?? ""] : [];
  });

// Guarantee: a gateway serves the database that it was told, or none: another one is somebody else's money.
test("a database that cannot be selected is a store that cannot be used", async () => {
  const gateway = await givenGatewayAt(`${inject("redisUrl")}/99999`);
  await until(
    async () => reasons(gateway).some((why) => why.includes("DB index is out of range")),
    "the reason",
  );
  expect((await fetch(`${gateway.adminUrl}/readyz`)).status).toBe(503);
});

test("another database is used as it was told", async () => {
  const gateway = await givenGatewayAt(`${inject("redisUrl")}/7`);
  await until(async () => (await fetch(`${gateway.adminUrl}/readyz`)).status === 200, "readiness");
  const { key } = await gateway.givenKey();
  expectStatus(await gateway.request("GET", "/api/v1/credits", { key }), 200);
  expect(Number(await gateway.redis.exists("tg:meta"))).toBe(1);
});

test("the log says at once why Redis cannot be used, also when the reason is another than before", async () => {
  const redis = await givenRedis();
  undo.push(() => redis.stop());
  await redis.client.acl("SETUSER", "gateway", "on", ">right", "~*", "+@all");
  const gateway = await givenGatewayAt(redis.url.replace("redis://", "redis://gateway:wrong@"));
  await until(async () => reasons(gateway).length > 0, "a reason");
  expect(reasons(gateway)[0]).toContain("WRONGPASS");
  await redis.end();
  await until(async () => reasons(gateway).some((why) => why.includes("ECONNREFUSED")), "the new reason");
  await redis.startAgain();
});
