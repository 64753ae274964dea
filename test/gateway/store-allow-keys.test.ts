import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { IssuedKey, KeyOptions } from "../../src/operations/keys/issue-key.ts";
import { keyRecord } from "../support/audit.ts";
import { expectStatus, type Reply, until } from "../support/gateway.ts";
import { rawClient, rawPost } from "../support/raw-client.ts";
import {
  expectStoreAway,
  generate,
  givenStage,
  type Stage,
  sent,
  TEXT_TO_VIDEO,
  whileAway,
} from "../support/store-stage.ts";
import { readCounters, setKeyFields } from "../support/stored-records.ts";

let stage: Stage;
beforeAll(async () => {
  stage = await givenStage({ config: { store: { fallbackStrategy: "allow" } } });
});
afterAll(() => stage.stop());
beforeEach(() => {
  stage.gateway.generator.requests.length = 0;
});

const credits = ({ key }: IssuedKey): Promise<Reply> =>
  stage.gateway.request("GET", "/api/v1/credits", { key });

const ways: [string, (key: IssuedKey) => Promise<Reply>][] = [
  ["a generation", (key) => generate(stage.gateway, key)],
  ["a poll", ({ key }) => stage.gateway.request("GET", "/api/v1/tasks/task_unheard_of", { key })],
  ["credits", credits],
];

/** A key that this gateway has seen in one of these ways. */
async function seenBy(see: (key: IssuedKey) => Promise<Reply>, options: KeyOptions): Promise<IssuedKey> {
  const key = await stage.givenKey(options);
  // Just after an outage, a poll of an unknown task is 503: another gateway may still have to bind it.
  expect([200, 404, 503]).toContain((await see(key)).status);
  return key;
}

// Guarantee: an outage prolongs no key.
test.each(ways)("a key seen by %s that ends during the outage stops", async (_, see) => {
  const key = await seenBy(see, { expiresAtMs: Date.now() + 3000 });
  const other = await seenBy(see, { expiresAtMs: Date.now() + 3_600_000 });
  await whileAway(stage, async () => {
    await until(async () => (await generate(stage.gateway, key)).status === 503, "the key to end");
    const sentBefore = sent(stage.gateway).length;
    expectStoreAway(await generate(stage.gateway, key));
    expect(sent(stage.gateway)).toHaveLength(sentBefore);
    expectStatus(await generate(stage.gateway, other), 200);
  });
  expectStatus(await generate(stage.gateway, key), 401);
});

// Guarantee: what passes unmetered counts toward the cap of the month, at its price.
test.each(ways)(
  "a key seen by %s that reaches its cap of the month during the outage stops",
  async (_, see) => {
    const key = await seenBy(see, { limits: { monthly_credits: 40 } });
    const counters = await readCounters(stage.redis.client, await keyRecord(stage.redis.client, key));
    const spent = Number(counters.spent ?? 0);
    const other = await seenBy(see, {});
    for (const outage of ["first", "second"]) {
      await whileAway(stage, async () => {
        for (let left = 40 - spent; left > 0; left -= 10) {
          expectStatus(await generate(stage.gateway, key), 200, `${outage}, ${left} left`);
        }
        expectStoreAway(await generate(stage.gateway, key));
        expectStatus(await generate(stage.gateway, other), 200);
      });
    }
    expectStatus(await generate(stage.gateway, key), 200, "nothing of it is spent");
  },
);

// Guarantee: an outage lets a key do nothing that it may not do otherwise.
test("a key with endpoints and addresses of its own stops at them during the outage, too", async () => {
  const none = { endpoints: undefined, addresses: undefined };
  const open = await seenBy(credits, {});
  const elsewhere = await seenBy(credits, {
    restrictions: { ...none, addresses: ["127.0.0.1/32", "::1/128"] },
  });
  const pro = await seenBy(credits, { restrictions: { ...none, endpoints: ["gen2-pro/text-to-video"] } });
  const record = await keyRecord(stage.redis.client, elsewhere);
  await setKeyFields(stage.redis.client, record, { restrictions: "addresses=192.0.2.0/24" });
  expectStatus(await credits(elsewhere), 401);
  await whileAway(stage, async () => {
    for (const key of [elsewhere, pro]) expectStoreAway(await generate(stage.gateway, key));
    expectStatus(await generate(stage.gateway, open), 200);
  });
});

// Guarantee: a key that was called invalid passes by no request that knew it before.
test("a request whose body comes after its key was revoked does not pass", async () => {
  const key = await seenBy(credits, {});
  const { head, body } = rawPost(TEXT_TO_VIDEO, key.key, { prompt: "A paper boat" });
  const client = await rawClient(stage.gateway.url);
  client.send(head);
  await until(async () => (await inFlight()) === 1, "the head to be read");
  await setKeyFields(stage.redis.client, await keyRecord(stage.redis.client, key), { revoked_at: 1 });
  expectStatus(await generate(stage.gateway, key), 401);
  await whileAway(stage, async () => {
    client.send(body);
    await client.answers(1);
    expect(client.received()).toMatch(/^HTTP\/1.1 503/);
  });
  client.close();
  expect(sent(stage.gateway)).toHaveLength(0);
});

async function inFlight(): Promise<number> {
  const [line] = await stage.gateway.metric("tollgate_requests_in_flight ");
  return Number(line?.split(" ")[1]);
}
