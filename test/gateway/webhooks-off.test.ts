import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { startGenerator } from "../support/generator.ts";
import { startGatewayProcess } from "../support/processes.ts";
import { givenRedis } from "../support/store-stage.ts";
import { WEBHOOK_SECRET_KEY } from "../support/webhook-stage.ts";
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

/** The modules of src that a gateway has loaded by its end, as V8 tells. */
async function modulesOf(
  redisUrl: string,
  upstreamUrl: string,
  env: Record<string, string>,
): Promise<string[]> {
  const coverage = await mkdtemp(join(tmpdir(), "tollgate-modules-"));
  const gateway = await startGatewayProcess({
    ...{ redisUrl, upstreamUrl, fromSources: true },
    env: { ...env, NODE_V8_COVERAGE: coverage },
  });
  await gateway.stop();
  const files = await readdir(coverage);
  const texts = await Promise.all(files.map((file) => readFile(join(coverage, file), "utf8")));
  await rm(coverage, { recursive: true });
  const urls = texts.flatMap((text) => JSON.parse(text).result.map(({ url }: { url: string }) => url));
  return urls.flatMap((url) => /\/src\/(.+\.ts)$/.exec(url)?.[1] ?? []);
}

// Guarantee: a feature that only some use costs the others nothing.
test("a gateway without WEBHOOK_SECRET_KEY loads no module of webhooks; one with it does", async () => {
  const [redis, generator] = await Promise.all([givenRedis(), startGenerator()]);
  const ofWebhooks = (modules: readonly string[]) => modules.filter((name) => name.startsWith("webhooks/"));
  const off = await modulesOf(redis.url, generator.url, {});
  expect(off).toContain("gateway/callbacks.ts");
  expect(ofWebhooks(off)).toEqual([]);
  const on = await modulesOf(redis.url, generator.url, { WEBHOOK_SECRET_KEY });
  expect(ofWebhooks(on)).toContain("webhooks/delivery-worker.ts");
  await generator.stop();
  await redis.stop();
});
