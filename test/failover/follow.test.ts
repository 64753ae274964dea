import { afterAll, beforeAll, expect, test } from "vitest";
import { issueKey } from "../../src/store/accounts.ts";
import { oneNode } from "../../src/store/nodes.ts";
import { givenGateway, type TestGateway } from "../support/gateway.ts";
import { ready, generate as sendGeneration } from "../support/store-stage.ts";
import { until } from "../support/until.ts";
import { startTrio, type Trio } from "./trio.ts";

let trio: Trio;
let gateway: TestGateway;
let key: string;

beforeAll(async () => {
  trio = await startTrio({ quickReturn: true });
  gateway = await givenGateway({ redisUrl: trio.redisUrl, config: { store: { commandTimeoutMs: 500 } } });
  await ready(gateway);
  const primary = await trio.healthy();
  const limits = { rateLimit: 10_000, maxConcurrent: 1000 };
  key = (await issueKey(oneNode(primary.client), { credits: 100_000, limits })).key;
});
afterAll(async () => {
  await gateway?.stop();
  await trio?.stop();
});

const generate = async (): Promise<number> => (await sendGeneration(gateway, { key })).status;
/** The accounts are served again. */
const served = (): Promise<void> => until(async () => (await generate()) === 200, "accounts to be served");

test("a gateway serves the accounts again once another node is the primary", async () => {
  await served();
  const old = (await trio.primary())!;
  await old.kill();
  const next = await trio.promoted(old);
  await served();
  expect(gateway.logs.join("")).toContain(`"primaries":["127.0.0.1:${next.announced}"]`);
});
