import { expect, onTestFinished, test } from "vitest";
import { type Config, defaultConfig } from "../../../src/config/config.ts";
import { createUpstreams } from "../../../src/gateway/upstreams.ts";
import { createLogger } from "../../../src/telemetry/log.ts";
import { createMetrics } from "../../../src/telemetry/metrics.ts";
import { givenPatientUpstream } from "../../support/patient-upstream.ts";
import { until } from "../../support/until.ts";

const DEADLINE_MS = 50_000;

/** The upstreams of a gateway, and a generation that its upstream does not answer. */
async function givenGenerationInFlight() {
  const patient = await givenPatientUpstream();
  onTestFinished(() => patient.stop());
  const log = createLogger("error", { write: () => undefined });
  const upstreams = createUpstreams({ metrics: createMetrics(), log });
  const { config } = defaultConfig();
  const configOf = (totalTimeoutMs: number): Config => ({
    ...config,
    upstream: { ...config.upstream, url: patient.url, totalTimeoutMs },
  });
  const used = configOf(DEADLINE_MS);
  const sender = { accountId: "a", requestId: "r" };
  const generation = upstreams.upstream(used).generate("/api/v1/gen2/text-to-video", "{}", sender);
  await until(() => patient.waiting.length === 1);
  return { upstreams, configOf, used, generation };
}

// Guarantee: what a drain cuts is settled before the store closes.
test("the end cuts what an upstream of a replaced configuration has in flight", async () => {
  const { upstreams, configOf, generation } = await givenGenerationInFlight();
  const next = configOf(DEADLINE_MS + 1000);
  upstreams.prepare(next);
  await upstreams.close();
  expect(await generation).toMatchObject({ outcome: "unclear" });
});

test("the end cuts what is in flight on connections that are not used again", async () => {
  const { upstreams, used, generation } = await givenGenerationInFlight();
  upstreams.upstream(used).resetConnectionPool();
  await upstreams.close();
  expect(await generation).toMatchObject({ outcome: "unclear" });
});
