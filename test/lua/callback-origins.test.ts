import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Redis } from "ioredis";
import { afterAll, beforeAll, expect, test } from "vitest";
import { issueKey } from "../../src/operations/keys/issue-key.ts";
import { registerEndpoint } from "../../src/operations/webhooks/endpoints.ts";
import { cliActor } from "../../src/records/actor.ts";
import { META, partitionOf } from "../../src/records/names.ts";
import type { Connection } from "../../src/redis/connection.ts";
import type { RedisNodes } from "../../src/redis/store-facts.ts";
import { createCallbackGuard, webhookRules } from "../../src/webhooks/operator-rules.ts";
import { startTwoNodes, type TwoNodes } from "../support/two-nodes.ts";

const PARTITIONS = 64;

let dir: string;
let two: TwoNodes;
let nodes: RedisNodes;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "tollgate-origins-"));
  two = await startTwoNodes(dir);
  nodes = two.nodes;
});
afterAll(async () => {
  await two?.stop();
  await rm(dir, { recursive: true, force: true });
});

/** An error of a command opens the breaker of the primary that was asked to run it. */
const connection = () =>
  ({
    of: (partition: number) => ({
      command: <T>(run: (redis: Redis) => Promise<T>) => run(nodes.of(partition)),
    }),
  }) as Pick<Connection, "of">;

const place = (at: number) => {
  const accountId = `acc_${at}`;
  return { accountId, partition: partitionOf(accountId, PARTITIONS) };
};

const rules = webhookRules({
  ...{ secretKey: "a key of webhook secrets for tests only", previousSecretKey: undefined },
  ...{ allowNetworks: [], allowPorts: [], endpointsPerAccount: 10 },
})!;

async function givenEndpoint({ accountId }: { accountId: string }): Promise<void> {
  await issueKey(nodes, { accountId, credits: 1 }, cliActor());
  await registerEndpoint(nodes, accountId, { url: "https://shop.example/hook" }, cliActor(), rules);
}

// Guarantee: nobody has the gateway call an origin that another account has shown to be its own.
test("an origin is the account's that has registered it, also while it is remembered, and in full", async () => {
  const [own, other] = [place(100), place(101)];
  await givenEndpoint(own);
  const guard = createCallbackGuard(connection());
  expect(await guard.hasOrigin(own, "https://shop.example")).toBe(true);
  expect(await guard.hasOrigin(other, "https://shop.example")).toBe(false);
  for (const origin of ["https://shop.exampl", "https://shop.example:8443", "http://shop.example"])
    expect(await guard.hasOrigin(own, origin), origin).toBe(false);
});

// Guarantee: a primary that is away makes 503 of its own partitions only.
test("the origin of a callBackUrl is looked up at the account's own primary alone", async () => {
  const meta = nodes.ofName(META);
  const own = Array.from({ length: 16 }, (_, at) => place(at)).find(
    ({ partition }) => nodes.of(partition) !== meta,
  )!;
  await givenEndpoint(own);
  const ended = once(meta, "end");
  meta.disconnect();
  await ended;
  const guard = createCallbackGuard(connection());
  expect(await guard.hasOrigin(own, "https://shop.example")).toBe(true);
  expect(await guard.hasOrigin(own, "https://other.example")).toBe(false);
});
