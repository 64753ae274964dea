import { expect, test } from "vitest";
import { givenRedis } from "../support/store-stage.ts";
import { givenManageStage } from "./manage-stage.ts";

test("without WEBHOOK_SECRET_KEY each route says what to set, and nothing of webhooks runs", async () => {
  const redis = await givenRedis();
  const stage = await givenManageStage({ redisUrl: redis.url });
  const accountId = await stage.givenAccount();
  const path = `/accounts/${accountId}/webhooks`;
  const body = { url: "https://example.com/", events: ["task.failed"] };
  for (const reply of [
    await stage.manage("POST", path, { body }),
    await stage.manage("GET", path),
    await stage.manage("GET", `${path}/we_1`),
    await stage.manage("DELETE", `${path}/we_1`),
    await stage.manage("GET", `${path}/we_1/deliveries`),
    await stage.manage("POST", "/webhooks/reseal"),
  ]) {
    expect(reply).toMatchObject({ status: 409, body: { code: "webhooks_off" } });
    expect(reply.body.detail).toContain("WEBHOOK_SECRET_KEY");
  }
  await stage.stop();
  await redis.stop();
});
