import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, test } from "vitest";
import { soon } from "../support/soon.ts";
import { type Pair, startPair } from "./pair.ts";

let pair: Pair;
beforeAll(async () => {
  pair = await startPair();
});
afterAll(() => pair?.stop());

/** A client as a gateway is one: it knows the announced address alone. */
async function withOutsider(work: (client: Redis) => Promise<void>): Promise<void> {
  const options = { lazyConnect: true, enableOfflineQueue: false, maxRetriesPerRequest: 0 };
  const client = new Redis(pair.redisUrl, { ...options, retryStrategy: () => null });
  client.on("error", () => undefined);
  try {
    await client.connect();
    await work(client);
  } finally {
    client.disconnect();
  }
}

test("what is sent over a link that is silently cut passes when the link is healed", () =>
  withOutsider(async (client) => {
    pair.links.cut("primary");
    const late = client.set("late", "1");
    expect(await pair.primary.client.get("late")).toBeNull();
    pair.links.heal("primary");
    expect(await late).toBe("OK");
    await pair.healthy();
  }));

test("what is sent over a link that is healed by forgetting never passes", () =>
  withOutsider(async (client) => {
    pair.links.cut("primary");
    const lost = client.set("lost", "1").catch((error: Error) => error.message);
    pair.links.heal("primary", { discard: true });
    expect(await lost).toMatch(/closed/);
    expect(await pair.primary.client.get("lost")).toBeNull();
    await pair.healthy();
  }));

test("a link that is cut by resets refuses new connections too", () =>
  withOutsider(async (client) => {
    pair.links.cut("primary", { how: "reset" });
    await soon(() => expect(client.status).toBe("end"));
    await expect(withOutsider(async () => undefined)).rejects.toThrow(/closed/);
    pair.links.heal("primary");
    await withOutsider(async (again) => expect(await again.ping()).toBe("PONG"));
    await pair.healthy();
  }));

test("a node that is cut off from another one is still reached from outside", () =>
  withOutsider(async (client) => {
    pair.links.cut("primary", { from: ["replica"] });
    await client.set("alone", "1");
    expect(await client.wait(1, 100)).toBe(0);
    pair.links.heal("primary");
    await pair.healthy();
    expect(await pair.replica.client.get("alone")).toBe("1");
  }));

test("a truncated append-only file: the server starts, without its last writes", async () => {
  const { client } = pair.primary;
  for (let at = 0; at < 100; at++) await client.set(`entry-${at}`, "1");
  await pair.primary.kill();
  expect(pair.primary.truncate(600)).toBe(600);
  await pair.primary.start();
  expect(await client.get("entry-0")).toBe("1");
  expect(await client.get("entry-99")).toBeNull();
  await pair.healthy();
  // The replica takes over what the primary has lost.
  expect(await pair.replica.client.get("entry-99")).toBeNull();
});
