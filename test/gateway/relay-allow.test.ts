import { afterAll, beforeAll, expect, test } from "vitest";
import { expectStatus } from "../support/gateway.ts";
import { CUSTOMER, PUBLIC_URL, SECRET, storyboard } from "../support/relay-stage.ts";
import {
  expectStoreAway,
  generate,
  givenStage,
  type Stage,
  sent,
  TEXT_TO_VIDEO,
  whileAway,
} from "../support/store-stage.ts";

// Guarantee: while the store is away, what passes without a callBackUrl passes with one, too.

const webhooks = { publicUrl: PUBLIC_URL, secretKey: SECRET, callbacks: "all" as const };

let stage: Stage;
beforeAll(async () => {
  stage = await givenStage({ config: { store: { fallbackStrategy: "allow" }, webhooks } });
});
afterAll(() => stage.stop());

test("a generation with a callBackUrl passes unmetered, though nobody can look up the account's origins", async () => {
  const issued = await stage.givenKey();
  const withAddress = (key: string, callBackUrl: string) =>
    stage.gateway.request("POST", TEXT_TO_VIDEO, { key, body: { prompt: "A boat", callBackUrl } });
  expectStatus(await generate(stage.gateway, issued), 200);
  const unseen = await stage.givenKey();
  await whileAway(stage, async () => {
    const replies = [await withAddress(issued.key, CUSTOMER), await storyboard(stage.gateway, issued)];
    for (const reply of replies) {
      expectStatus(reply, 200);
      expect(reply.headers.get("x-gateway-degraded")).toBe("store");
    }
    expectStatus(await withAddress(issued.key, "https://10.0.0.1/"), 400);
    expectStoreAway(await withAddress(unseen.key, CUSTOMER));
  });
  const bodies = sent(stage.gateway).map(({ body }) => JSON.parse(String(body)).callBackUrl);
  expect(bodies, "no record exists that a token could name").toEqual([undefined, undefined, CUSTOMER]);
  expectStatus(await withAddress(issued.key, CUSTOMER), 400, "an origin that nobody has registered");
});
