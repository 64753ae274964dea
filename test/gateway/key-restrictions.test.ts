import { afterAll, beforeAll, expect, test } from "vitest";
import { checkedRestrictions } from "../../src/operations/access/operator-values.ts";
import { changeKey, type KeyChanges, rotateKey } from "../../src/operations/keys/change-key.ts";
import type { IssuedKey, KeyOptions } from "../../src/operations/keys/issue-key.ts";
import { findKey } from "../../src/operations/keys/keys.ts";
import { cliActor } from "../../src/records/actor.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { expectStatus, givenGateway, type Reply, type TestGateway } from "../support/gateway.ts";
import { sendForm } from "./openapi-stage.ts";
import { asking, BOAT, expectNobody, PRO_TEXT_TO_VIDEO, TEXT_TO_VIDEO } from "./spec-stage.ts";

// Clients of these gateways are behind a proxy that says where they are.
let gateway: TestGateway;
let other: TestGateway;
let ask: ReturnType<typeof asking>;
beforeAll(async () => {
  const config = { server: { trustProxy: ["127.0.0.1"], unknownKeysPerMinute: 50 } };
  gateway = await givenGateway({ config });
  other = await givenGateway({ config, generator: gateway.generator });
  ask = asking(gateway);
});
afterAll(async () => {
  await other.stop();
  await gateway.stop();
});

const HOME = "203.0.113.7";
const ELSEWHERE = "198.51.100.9";
const from = (address: string) => ({ "x-forwarded-for": address });

const givenKey = ({
  allowedEndpoints,
  allowedAddresses,
  ...options
}: KeyOptions & Partial<KeyChanges> = {}) =>
  gateway.givenKey({
    ...options,
    restrictions: checkedRestrictions({ allowedEndpoints, allowedAddresses }),
  } as KeyOptions);

async function change({ keyId }: IssuedKey, changes: KeyChanges): Promise<void> {
  const nodes = oneNode(gateway.redis);
  await changeKey(nodes, await findKey(nodes, keyId), changes, cliActor("test"));
}

const generate = ({ key }: IssuedKey, address = HOME, path = TEXT_TO_VIDEO, headers = {}): Promise<Reply> =>
  ask("POST", path, { key, body: BOAT, headers: { ...from(address), ...headers } });

/** The answer to every unknown key: the same bytes but for the request's id. */
const withoutId = ({ status, headers, body }: Reply) => ({
  status,
  names: [...headers.keys()].sort(),
  body: { ...body, request_id: "" },
});

// Guarantee: a key with endpoints of its own can be used for nothing else, and nothing is charged, held or sent for it.
test("a key that may use one endpoint gets 403 on the others, whatever its body, and 200 on that one", async () => {
  const key = await givenKey({ allowedEndpoints: ["/api/v1/gen2/text-to-video/"] });
  const sentBefore = gateway.generator.requests.length;
  for (const body of [BOAT, { promt: "a typo" }]) {
    const refused = await ask("POST", PRO_TEXT_TO_VIDEO, { key: key.key, body });
    expectStatus(refused, 403);
    expect(refused.body).toMatchObject({ code: 403, error: expect.stringMatching(/gen2\/text-to-video/) });
    expect(refused.headers.get("x-should-retry")).toBe("false");
  }
  expect(gateway.generator.requests).toHaveLength(sentBefore);
  const made = await generate(key);
  expectStatus(made, 200);
  const reads = [
    await ask("GET", `/api/v1/tasks/${made.body.data.task_id}`, { key: key.key }),
    await ask("GET", "/api/v1/credits", { key: key.key }),
    await sendForm(gateway, key.key, "GIF89a"),
  ];
  for (const reply of reads) expectStatus(reply, 200);
  expect(reads[1]!.body.data).toMatchObject({ balance: 990, total_requests: 1 });
});

// Guarantee: a key that was stolen is worth nothing elsewhere, and does not even look like one.
test("from another address a key is answered as an unknown one on every path, and uses up nothing of its own", async () => {
  const key = await givenKey({ allowedAddresses: ["203.0.113.0/24"] });
  const made = await generate(key, HOME, TEXT_TO_VIDEO, { "idempotency-key": "order-1" });
  expectStatus(made, 200);
  const unknown = await ask("POST", TEXT_TO_VIDEO, {
    key: "sk_unknown",
    body: BOAT,
    headers: from("192.0.2.1"),
  });
  const path = `/api/v1/tasks/${made.body.data.task_id}`;
  const options = { key: key.key, headers: from(ELSEWHERE) };
  const replies = [
    await generate(key, ELSEWHERE),
    await generate(key, ELSEWHERE, TEXT_TO_VIDEO, { "idempotency-key": "order-1" }),
    await ask("POST", TEXT_TO_VIDEO, { ...options, body: { promt: "a typo" } }),
    await ask("GET", path, options),
    await ask("GET", "/api/v1/credits", options),
    await ask("GET", "/api/v1/nothing", options),
    await ask("DELETE", "/api/v1/credits", options),
    await ask("POST", "/api/v1/upload", { ...options, body: {} }),
  ];
  for (const reply of replies) {
    expect(withoutId(reply)).toEqual(withoutId(unknown));
    expectNobody(reply);
  }
  expectStatus(await ask("GET", path, { key: key.key, headers: from(HOME) }), 200);
});

test("a gateway that has never seen the key refuses it from elsewhere, too", async () => {
  for (const path of ["/api/v1/credits", "/api/v1/tasks/TASK", "/api/v1/tasks/no-such", "/api/v1/nothing"]) {
    const key = await givenKey({ allowedAddresses: [HOME] });
    const made = await generate(key);
    expectStatus(made, 200);
    const target = path.replace("TASK", made.body.data.task_id);
    const reply = await other.request("GET", target, { key: key.key, headers: from(ELSEWHERE) });
    expectStatus(reply, 401, path);
    expectNobody(reply);
  }
  const fresh = await givenKey({ allowedAddresses: [HOME] });
  const request = { key: fresh.key, body: BOAT, headers: from(ELSEWHERE) };
  expectStatus(await other.request("POST", TEXT_TO_VIDEO, request), 401);
});

test.each([
  ["an IPv4-mapped address", ["203.0.113.0/24"], "::ffff:203.0.113.9", 200],
  ["an IPv4-mapped range", ["::ffff:203.0.113.0/120"], HOME, 200],
  ["one IPv6 address of a /64", ["2001:db8::5"], "2001:db8::5", 200],
  ["its neighbour", ["2001:db8::5"], "2001:db8::6", 401],
  ["a client's own word for its address, behind the proxy's", [HOME], `${HOME}, ${ELSEWHERE}`, 401],
])("%s", async (_, allowedAddresses, address, status) => {
  const key = await givenKey({ allowedAddresses });
  for (let nth = 0; nth < 2; nth++) expectStatus(await generate(key, address), status);
});

test("without a trusted proxy X-Forwarded-For counts for nothing", async () => {
  const direct = await givenGateway({ generator: gateway.generator });
  try {
    const key = await givenKey({ allowedAddresses: [HOME] });
    const request = { key: key.key, headers: from(HOME) };
    expectStatus(await direct.request("GET", "/api/v1/credits", request), 401);
    await change(key, { allowedAddresses: ["127.0.0.1", "::1"] });
    expectStatus(await direct.request("GET", "/api/v1/credits", request), 200);
  } finally {
    await direct.stop();
  }
});

// Guarantee: a change counts from the next request on, on every gateway.
test("restrictions that are set, widened and taken away count from the next request on", async () => {
  const key = await givenKey();
  const [one, two] = [gateway, other];
  const expectBoth = async (status: number, path = TEXT_TO_VIDEO) => {
    for (const { request } of [one, two]) {
      const reply = await request("POST", path, { key: key.key, body: BOAT, headers: from(HOME) });
      expectStatus(reply, status);
    }
  };
  await expectBoth(200);
  await change(key, { allowedEndpoints: ["gen2-pro/text-to-video"] });
  await expectBoth(403);
  await expectBoth(200, PRO_TEXT_TO_VIDEO);
  await change(key, { allowedAddresses: [ELSEWHERE] });
  await expectBoth(401, PRO_TEXT_TO_VIDEO);
  await change(key, { allowedAddresses: [HOME] });
  await expectBoth(200, PRO_TEXT_TO_VIDEO);
  await expectBoth(403);
  await change(key, { allowedEndpoints: null });
  await expectBoth(200);
  await change(key, { allowedAddresses: null });
  expectStatus(await generate(key, ELSEWHERE), 200);
});

test("two changes at a time, one of each kind, both stay", async () => {
  const key = await givenKey();
  await Promise.all([
    change(key, { allowedEndpoints: ["gen2/text-to-video"] }),
    change(key, { allowedAddresses: [HOME] }),
  ]);
  const { restrictions } = await findKey(oneNode(gateway.redis), key.keyId);
  expect(restrictions).toEqual({ endpoints: ["gen2/text-to-video"], addresses: [`${HOME}/32`] });
});

test("the key that replaces another has its restrictions", async () => {
  const old = await givenKey({ allowedEndpoints: ["gen2/text-to-video"], allowedAddresses: [HOME] });
  const nodes = oneNode(gateway.redis);
  const heir = await rotateKey(nodes, await findKey(nodes, old.keyId), 0, cliActor("test"));
  expectStatus(await generate(heir), 200);
  expectStatus(await generate(heir, ELSEWHERE), 401);
  expectStatus(await generate(heir, HOME, PRO_TEXT_TO_VIDEO), 403);
});

test("an address that tries a key again and again gets what an address with unknown keys gets, and the owner notices nothing", async () => {
  const strict = await givenGateway({
    config: { server: { trustProxy: ["127.0.0.1"], unknownKeysPerMinute: 3, utilityRequestsPerSecond: 5 } },
    generator: gateway.generator,
  });
  try {
    const key = await givenKey({ allowedAddresses: [HOME] });
    const ask = (address: string, token = key.key) =>
      strict.request("GET", "/api/v1/credits", { key: token, headers: from(address) });
    const replies: Reply[] = [];
    for (let nth = 0; nth < 20; nth++) replies.push(await ask(ELSEWHERE));
    expect(replies.map(({ body }) => body.code)).toEqual([401, 401, 401, ...Array(17).fill(2005)]);
    expect((await ask(ELSEWHERE, "sk_unknown")).body.code).toBe(2005);
    expectStatus(await ask(HOME), 200);
  } finally {
    await strict.stop();
  }
});
