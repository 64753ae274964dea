import { afterAll, beforeAll, expect, test } from "vitest";
import { issueKey } from "../../src/operations/keys/issue-key.ts";
import { cliActor } from "../../src/records/actor.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { givenGateway, type TestGateway } from "../support/gateway.ts";
import { ready, generate as sendGeneration } from "../support/store-stage.ts";
import { until } from "../support/until.ts";
import type { RedisNode } from "./node.ts";
import { startTrio, type Trio } from "./trio.ts";

let trio: Trio;
let gateway: TestGateway;
let key: string;

beforeAll(async () => {
  trio = await startTrio({ quickReturn: true });
  gateway = await givenGateway({ redisUrl: trio.redisUrl, config: { store: { commandTimeoutMs: 500 } } });
  await ready(gateway);
  const primary = await trio.healthy();
  const limits = { rate_limit: 10_000, max_concurrent: 1000 };
  key = (await issueKey(oneNode(primary.client), { credits: 100_000, limits }, cliActor())).key;
});
afterAll(async () => {
  await gateway?.stop();
  await trio?.stop();
});

const generate = async (): Promise<number> => (await sendGeneration(gateway, { key })).status;
/** The accounts are served again. */
const served = (): Promise<void> => until(async () => (await generate()) === 200, "accounts to be served");

/** The connections of gateways to a node: those of replicas, of Sentinels and of the rig itself are left out. */
async function gatewayClients(node: RedisNode): Promise<string[]> {
  const list = String(await node.ask("CLIENT", "LIST", "TYPE", "normal"));
  return list.split("\n").filter((line) => / name= /.test(line) && !/ cmd=client\|list /.test(line));
}

/** @param end what heals the old primary */
async function failOver(
  strike: (primary: RedisNode) => Promise<void> | void,
  end: (old: RedisNode) => Promise<void> | void,
) {
  const old = await trio.healthy();
  await served();
  expect((await gatewayClients(old)).length).toBeGreaterThan(0);
  await strike(old);
  try {
    await trio.promoted(old);
    await served();
    await until(usesPrimaryAlone, "the gateway to use the new primary alone");
  } finally {
    await end(old);
  }
  // On a busy machine the Sentinels may promote another one meanwhile.
  const now = await trio.healthy();
  expect(now).not.toBe(old);
  await until(usesPrimaryAlone, "the gateway to use the primary alone");
  expect(await gatewayClients(old)).toEqual([]);
  expect((await gatewayClients(now)).length).toBeGreaterThan(0);
}

async function usesPrimaryAlone(): Promise<boolean> {
  const primary = await trio.primary();
  const up = await gateway.metric("tollgate_primary_up{");
  return up.join() === `tollgate_primary_up{primary="127.0.0.1:${primary?.announced}"} 1`;
}

test("a primary that was killed is left for the new one, and not used once it is back", () =>
  failOver(
    (primary) => primary.kill(),
    (old) => old.start(),
  ));

test("a primary that hangs is left for the new one, with its connections closed", () =>
  failOver(
    (primary) => primary.pause(),
    (old) => old.resume(),
  ));

test("a primary that is cut off is left for the new one, with its connections closed", () =>
  failOver(
    (primary) => trio.links.cut(primary.name),
    (old) => trio.links.heal(old.name),
  ));
