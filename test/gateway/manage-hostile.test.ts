import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { afterAll, beforeAll, describe, expect, inject, onTestFinished, test } from "vitest";
import { startFaultProxy } from "../support/fault-proxy.ts";
import { expectStatus, until } from "../support/gateway.ts";
import { heads, rawClient, rawPost } from "../support/raw-client.ts";
import { givenManageStage, type ManageStage } from "./manage-stage.ts";

// Guarantee: what a token may not do stays refused, however its call is written, and no holder of one stops another.

let stage: ManageStage;
beforeAll(async () => {
  stage = await givenManageStage();
});
afterAll(() => stage.stop());

/** As many connections as the admin port has, each with a call whose body does not end; the gateway waits for all of them. */
async function givenUnfinishedCalls(token: string, path: string): Promise<Socket[]> {
  const { hostname, port } = new URL(stage.gateway.adminUrl);
  return Promise.all(
    Array.from({ length: 64 }, async () => {
      const socket = connect(Number(port), hostname).on("error", () => undefined);
      socket.write(
        `PATCH /manage/v1${path} HTTP/1.1\r\nHost: ${hostname}:${port}\r\nAuthorization: Bearer ${token}\r\n` +
          "Content-Type: application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n{",
      );
      const [chunk] = await once(socket, "data");
      expect(String(chunk)).toMatch(/^HTTP\/1.1 100 /);
      return socket;
    }),
  );
}

const unknownFields = (count: number) =>
  Object.fromEntries(Array.from({ length: count }, (_, at) => [`x${at}`, 1]));

describe("no number of unknown fields gets a body past its validation", () => {
  test.each([1, 19, 20, 21, 500])("%i beside a label", async (count) => {
    const accountId = await stage.givenAccount();
    const body = { ...unknownFields(count), label: "changed" };
    const refused = await stage.manage("PATCH", `/accounts/${accountId}`, { body });
    expectStatus(refused, 400);
    expect(refused.body.errors[0]).toEqual({ path: "/x0", message: "x0 is not a known parameter" });
    expect(refused.body.errors.length).toBeLessThanOrEqual(20);
    expect((await stage.manage("GET", `/accounts/${accountId}`)).body.label).toBeNull();
  });

  test("25 beside a reference of the wrong type: nothing is granted, and both are named", async () => {
    const accountId = await stage.givenAccount();
    const body = { ...unknownFields(25), credits: 5, reference: { a: 1 } };
    const refused = await stage.manage("POST", `/accounts/${accountId}/grants`, { body });
    expectStatus(refused, 400);
    const paths = refused.body.errors.map(({ path }: { path: string }) => path);
    expect(paths).toContain("/x0");
    expect(paths).toContain("/reference");
    expect((await stage.manage("GET", `/accounts/${accountId}`)).body.balance).toBe(0);
  });

  test("50 within the limits of a key", async () => {
    const accountId = await stage.givenAccount();
    const refused = await stage.manage("POST", `/accounts/${accountId}/keys`, {
      body: { limits: { ...unknownFields(50), rate_limit: "many" } },
      headers: { "Idempotency-Key": "first" },
    });
    expectStatus(refused, 400);
    expect(refused.body.errors[0].path).toBe("/limits/x0");
    expect(refused.body.errors.at(-1).path).toBe("/limits/rate_limit");
  });
});

describe("a long query costs nothing: it is refused before it is looked at", () => {
  const letters = [..."abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"];
  const names = letters.flatMap((one) => letters.map((other) => one + other));

  test.each<[string, string, string]>([
    ["51 parameters", names.slice(0, 51).join("&"), "must not have more than 50 parameters"],
    ["1,000 times the same", Array.from({ length: 1000 }, () => "a").join("&"), "50 parameters"],
    ["3,800 names", names.join("&"), "must not exceed 10000 characters"],
    ["one name of 12,000 characters", "a".repeat(12_000), "must not exceed 10000 characters"],
  ])("%s", async (_, query, message) => {
    const token = await stage.givenToken(["webhooks:write"]);
    const refused = await stage.manage("GET", `/packages?${query}`, { token });
    expectStatus(refused, 400);
    expect(refused.body.errors).toEqual([{ path: "?", message: expect.stringContaining(message) }]);
  });

  test("whoever has no token, or lacks the scope, does not even learn that", async () => {
    const token = await stage.givenToken(["webhooks:write"]);
    const path = `/accounts?${names.join("&")}`;
    expectStatus(await stage.manage("GET", path, { token: null }), 401);
    expectStatus(await stage.manage("GET", path, { token }), 403);
  });

  test("of 50 unknown names, 20 are answered", async () => {
    const { body } = await stage.manage("GET", `/packages?${names.slice(0, 50).join("&")}`);
    expect(body.errors).toHaveLength(20);
  });

  test("the longest search that is valid is answered", async () => {
    const q = encodeURIComponent("\u{1F600}".repeat(200));
    expectStatus(await stage.manage("GET", `/search?q=${q}`), 200);
  });
});

test("calls whose bodies do not end keep neither probes nor other calls from the admin port", async () => {
  const accountId = await stage.givenAccount();
  const token = await stage.givenToken(["accounts:write"], { accounts: [accountId] });
  const refused = async () => {
    const metrics = await (await fetch(`${stage.gateway.adminUrl}/metrics`)).text();
    const count =
      /^tollgate_management_requests_total\{route="PATCH \/accounts\/\{account\}",status="400"\} (\d+)$/m;
    return Number(count.exec(metrics)?.[1] ?? 0);
  };
  const before = await refused();
  const sockets = await givenUnfinishedCalls(token, `/accounts/${accountId}`);
  try {
    for (const path of ["/livez", "/readyz"])
      expect((await fetch(stage.gateway.adminUrl + path)).status, path).toBe(200);
    expectStatus(await stage.manage("GET", `/accounts/${accountId}`), 200);
  } finally {
    for (const socket of sockets) socket.destroy();
  }
  await until(async () => (await refused()) === before + 64, "all unfinished calls to be counted");
  expect(stage.gateway.logs.filter((line) => line.includes("internal fault"))).toEqual([]);
});

// Guarantee: a token that was stolen does nothing after it was revoked, also by calls that began before.
test("a call whose token is revoked while its body arrives changes nothing", async () => {
  const accountId = await stage.givenAccount();
  const wanted = { label: "stolen", scopes: ["credits:write"] };
  const { token, token_id: id } = (await stage.manage("POST", "/tokens", { body: wanted })).body;
  const client = await rawClient(stage.gateway.adminUrl);
  const path = `/manage/v1/accounts/${accountId}/grants`;
  const call = rawPost(path, token, { credits: 5, reference: "late" }, ["Expect: 100-continue"]);
  client.send(call.head.replace("gateway.test", "localhost"));
  await client.answers(1);
  expect(client.received()).toMatch(/^HTTP\/1.1 100 /);
  expectStatus(await stage.manage("POST", `/tokens/${id}/revoke`), 200);
  client.send(call.body);
  await client.answers(2);
  expect(heads(client.received())[1]).toMatch(/^HTTP\/1.1 401 /);
  expect((await stage.manage("GET", `/accounts/${accountId}`)).body.balance).toBe(0);
  client.close();
});

test("one token's calls, more than are served at a time, get no call of another refused", async () => {
  const proxy = await startFaultProxy(Number(new URL(inject("redisUrl")).port));
  const slow = await givenManageStage({ redisUrl: proxy.url });
  onTestFinished(async () => {
    await proxy.heal();
    await slow.stop();
    await proxy.stop();
  });
  const accountId = await slow.givenAccount();
  const token = await slow.givenToken(["accounts:read"], { accounts: [accountId] });
  await proxy.steer({ delayMs: 10 });
  let refused = 0;
  const call = async (path: string, by?: string) => {
    const reply = await slow.manage("GET", path, by === undefined ? {} : { token: by });
    if (reply.status === 503) refused++;
    return reply;
  };
  // 8 run and 32 wait.
  const many = Array.from({ length: 50 }, () => call("/search?q=zzz", token));
  await until(() => refused === 10, "all places to be taken");
  const few = Array.from({ length: 5 }, () => call(`/accounts/${accountId}`));
  await until(() => refused === 15, "five more to be refused");
  await proxy.heal();
  for (const reply of await Promise.all(few)) expectStatus(reply, 200);
  await Promise.all(many);
});

test("a token for some accounts is not told how many keys all accounts have", async () => {
  const accountId = await stage.givenAccount();
  const token = await stage.givenToken(["accounts:read"], { accounts: [accountId] });
  const keysBy = async (by?: string): Promise<(number | null)[]> => {
    const { body } = await stage.manage("GET", "/tiers", by === undefined ? {} : { token: by });
    return body.data.map(({ keys }: { keys: number | null }) => keys);
  };
  await until(async () => (await keysBy()).every((keys) => keys !== null), "the keys to be counted");
  expect(await keysBy(await stage.givenToken(["accounts:read"]))).not.toContain(null);
  expect(new Set(await keysBy(token))).toEqual(new Set([null]));
});
