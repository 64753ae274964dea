import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { expectStatus } from "../support/gateway.ts";
import {
  away,
  expectStoreAway,
  generate,
  givenStage,
  ready,
  type Stage,
  sent,
} from "../support/store-stage.ts";

let stage: Stage;
let key: IssuedKey;
beforeAll(async () => {
  stage = await givenStage({ config: { store: { fallbackStrategy: "allow" } } });
});
afterAll(() => stage.stop());
beforeEach(async () => {
  key = await stage.givenKey();
  expectStatus(await generate(stage.gateway, key), 200);
  stage.gateway.generator.requests.length = 0;
  stage.gateway.logs.length = 0;
});

/** Changes a setting of the running Redis, so that it refuses the gateway. */
async function whileRefused(name: string, value: string, work: () => Promise<void>): Promise<void> {
  const { client } = stage.redis;
  const [, before = ""] = (await client.config("GET", name)) as string[];
  await client.config("SET", name, value);
  try {
    await client.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
    await away(stage.gateway);
    await work();
  } finally {
    await client.config("SET", name, before);
    await ready(stage.gateway);
  }
}

// Guarantee: `allow` is for a Redis that cannot be reached. One that answers with an error is no outage.
test.each([
  { what: "its password was changed", name: "requirepass", value: "another", why: /WRONGPASS|NOAUTH/ },
  { what: "it may evict keys", name: "maxmemory-policy", value: "allkeys-lru", why: /evict/ },
  { what: "it takes no more connections", name: "maxclients", value: "1", why: /max number of clients/ },
  { what: "it lacks replicas", name: "min-replicas-to-write", value: "1", why: /NOREPLICAS/ },
])("with allow, nothing passes while Redis answers that $what", async ({ name, value, why }) => {
  await whileRefused(name, value, async () => {
    for (let nth = 0; nth < 8; nth++) expectStoreAway(await generate(stage.gateway, key));
  });
  expect(sent(stage.gateway)).toHaveLength(0);
  const errors = stage.gateway.logs.map((line) => JSON.parse(line)).filter(({ level }) => level === "error");
  expect(errors.find(({ msg }) => msg.startsWith("Redis answers"))?.why).toMatch(why);
});
