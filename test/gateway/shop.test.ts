import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, expect, test } from "vitest";
import { expectStatus, type Reply, send } from "../support/gateway.ts";
import { ADMIN_TOKEN, givenManageStage, type ManageStage } from "./manage-stage.ts";
import { BOAT, TEXT_TO_VIDEO } from "./spec-stage.ts";

// Guarantee: examples/shop does what its README says, against a real gateway, with a token that may do just that.

const FOLDER = join(import.meta.dirname, "../../examples/shop");
/** The scopes of the token that the README makes. */
const SCOPES = /--scopes (\S+)/.exec(readFileSync(join(FOLDER, "README.md"), "utf8"))![1]!.split(",");

let stage: ManageStage;
let token: string;
let shop: Shop;
beforeAll(async () => {
  stage = await givenManageStage();
  token = await stage.givenToken(SCOPES);
  shop = await givenShop(stage.gateway.adminUrl);
});
afterAll(async () => {
  await shop.stop();
  await stage.stop();
});

type Shop = Awaited<ReturnType<typeof givenShop>>;

/** @param tollgateUrl where it finds the management API */
async function givenShop(tollgateUrl: string) {
  const env = { ...process.env, TOLLGATE_URL: tollgateUrl, TOLLGATE_TOKEN: token, PORT: "0" };
  const child = spawn(process.execPath, ["shop.ts"], {
    ...{ cwd: FOLDER, env },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [line] = (await once(createInterface(child.stdout), "line")) as [string];
  const url = /http:\S+/.exec(line)![0];
  return {
    call: (method: string, path: string, body?: object): Promise<Reply> =>
      send(url, method, path, { ...(body && { body }) }),
    async stop() {
      child.kill();
      await once(child, "exit");
    },
  };
}

/** Passes calls on to the management API, and breaks the connection instead of the first answer to each kind of write. */
async function givenLostAnswers() {
  const lost = new Set<string>();
  const server = createServer(async (req, res) => {
    const chunks = await req.toArray();
    const headers = Object.entries(req.headers).filter(
      ([name]) => !/^(host|connection|content-length)$/.test(name),
    );
    const { method = "" } = req;
    const answer = await fetch(`${stage.gateway.adminUrl}${req.url}`, {
      method,
      headers: Object.fromEntries(headers) as Record<string, string>,
      ...(chunks.length > 0 && { body: Buffer.concat(chunks) }),
    });
    const write = `${method} ${req.url?.replace(/(accounts|keys)\/[^/]+/g, "$1/*")}`;
    if (method !== "GET" && !lost.has(write)) {
      lost.add(write);
      req.socket.destroy();
      return;
    }
    res.writeHead(answer.status, { "Content-Type": answer.headers.get("Content-Type") ?? "" });
    res.end(await answer.text());
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    lost,
    stop: () => server[Symbol.asyncDispose](),
  };
}

const call = (method: string, path: string, body?: object): Promise<Reply> => shop.call(method, path, body);
const generate = (key: string): Promise<Reply> =>
  stage.gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT });

test("a customer signs up, buys a package, makes a video, is suspended, and gets one back", async () => {
  const joined = await call("POST", "/customers", { email: "ann@example.com" });
  expectStatus(joined, 200);
  const { customer_id: id, api_key: key } = joined.body;
  expectStatus(await generate(key), 402);

  const paid = await call("POST", `/customers/${id}/orders/1001/paid`, { package: "premium" });
  expectStatus(paid, 200);
  // The payment provider calls again.
  const again = await call("POST", `/customers/${id}/orders/1001/paid`, { package: "premium" });
  expect([paid.body, again.body]).toEqual([paid.body, { ...paid.body, balance: 500 }]);

  const made = await generate(key);
  expectStatus(made, 200);
  const taskId = made.body.data.task_id;
  const price = 500 - (await call("GET", `/customers/${id}`)).body.balance;
  expect(price).toBeGreaterThan(0);

  expectStatus(await call("POST", `/customers/${id}/suspend`), 200);
  expectStatus(await generate(key), 403);
  expectStatus(await call("POST", `/customers/${id}/resume`), 200);

  const complaint = { task_id: taskId, reason: "black frames" };
  expectStatus(await call("POST", `/customers/${id}/complaints`, complaint), 409);
  await expect
    .poll(
      async () => {
        await stage.gateway.request("GET", `/api/v1/tasks/${taskId}`, { key });
        return (await stage.manage("GET", `/tasks/${taskId}`, { token: ADMIN_TOKEN })).body.status;
      },
      { timeout: 60_000, interval: 500 },
    )
    .toBe("completed");
  const refunded = await call("POST", `/customers/${id}/complaints`, complaint);
  expectStatus(refunded, 200);
  expect(refunded.body).toEqual({ refunded: price, balance: 500 });
  expect((await call("POST", `/customers/${id}/complaints`, complaint)).body.balance).toBe(500);

  const expected = { requests: 1, credits: price, refunds: price };
  await expect
    .poll(async () => (await call("GET", `/customers/${id}`)).body, { timeout: 30_000, interval: 250 })
    .toMatchObject({
      email: "ann@example.com",
      status: "active",
      balance: 500,
      usage: [{ endpoint: TEXT_TO_VIDEO, ...expected }],
    });
});

// Guarantee: keys that have ended stay in the list, so the last page has the one to replace.
test("a customer of a hundred keys before gets another one", async () => {
  const customerId = `cus_${randomUUID()}`;
  await stage.manage("POST", "/accounts", { body: { account_id: customerId } });
  for (let made = 0; made < 100; made++) {
    const { key_id } = await stage.givenKey(customerId);
    await stage.manage("POST", `/accounts/${customerId}/keys/${key_id}/revoke`, { body: {} });
  }
  const { key } = await stage.givenKey(customerId);
  const renewed = await shop.call("POST", `/customers/${customerId}/new-key`);
  expectStatus(renewed, 200);
  expect(renewed.body.api_key).toMatch(/^sk_/);
  expect(renewed.body.api_key).not.toBe(key);
});

test("another customer's video is not refunded, and a mistake is told", async () => {
  const [ann, bob] = [
    (await call("POST", "/customers", { email: "ann@example.com" })).body,
    (await call("POST", "/customers", { email: "bob@example.com" })).body,
  ];
  await call("POST", `/customers/${ann.customer_id}/orders/1/paid`, { package: "basic" });
  const made = await generate(ann.api_key);
  const complaint = { task_id: made.body.data.task_id, reason: "mine" };
  expectStatus(await call("POST", `/customers/${bob.customer_id}/complaints`, complaint), 404);
  expectStatus(await call("POST", `/customers/${bob.customer_id}/orders/2/paid`, { package: "huge" }), 400);
  expectStatus(await call("POST", "/customers", {}), 400);
  expectStatus(await call("GET", "/nonsense"), 404);
});

// Guarantee: what the README says of lost answers.
test("a customer signs up and pays once, also if the first answer to each write is lost", async () => {
  const proxy = await givenLostAnswers();
  const unlucky = await givenShop(proxy.url);
  try {
    const joined = await unlucky.call("POST", "/customers", { email: "eve@example.com" });
    expectStatus(joined, 200);
    const { customer_id: id, api_key: key } = joined.body;
    const paid = await unlucky.call("POST", `/customers/${id}/orders/7/paid`, { package: "premium" });
    expectStatus(paid, 200);
    expect(paid.body).toEqual({ credits: 500, balance: 500 });
    expectStatus(await unlucky.call("POST", `/customers/${id}/suspend`), 200);
    expectStatus(await unlucky.call("POST", `/customers/${id}/resume`), 200);
    expectStatus(await generate(key), 200);
    const keys = (await stage.manage("GET", `/accounts/${id}/keys`)).body.data;
    expect(keys.filter(({ revoked_at }: { revoked_at: unknown }) => revoked_at === null)).toHaveLength(1);
    expect((await stage.manage("GET", `/accounts/${id}`)).body.label).toBe("eve@example.com");
    expect([...proxy.lost].map((write) => write.replace("/manage/v1", ""))).toEqual([
      "POST /accounts",
      "POST /accounts/*/keys",
      "POST /accounts/*/keys/*/rotate",
      "POST /accounts/*/grants",
      "PATCH /accounts/*",
    ]);
  } finally {
    await unlucky.stop();
    await proxy.stop();
  }
});

// Guarantee: after a month of whatever may happen, with the first answer to each kind of write lost, the shop's books are Tollgate's.
test("a shop's month ends with the same books at the shop and at Tollgate", async () => {
  const proxy = await givenLostAnswers();
  const unlucky = await givenShop(proxy.url);
  const month = new Date().toISOString().slice(0, 7);
  const post = async (path: string, body?: object) => {
    const reply = await unlucky.call("POST", path, body);
    expectStatus(reply, 200, path);
    return reply.body;
  };
  const used = async (key: string): Promise<string> => {
    const made = await generate(key);
    expectStatus(made, 200);
    return made.body.data.task_id;
  };
  try {
    // The shop's own notes.
    const books = { purchases: 0, charges: 0, refunds: 0, reversals: 0 };
    const price = 10;
    const { customer_id: id, api_key: first } = await post("/customers", { email: "max@example.com" });
    for (const [order, name] of [
      ["1", "premium"],
      ["2", "basic"],
    ]) {
      const answers = [];
      for (let nth = 0; nth < 3; nth++)
        answers.push(await post(`/customers/${id}/orders/${order}/paid`, { package: name }));
      expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1);
      books.purchases += answers[0].credits;
    }
    // The order with another amount is refused, and changes nothing.
    const other = await unlucky.call("POST", `/customers/${id}/orders/1/paid`, { package: "enterprise" });
    expectStatus(other, 409);

    const task = await used(first);
    const { api_key: second } = await post(`/customers/${id}/new-key`);
    for (const key of [first, second]) await used(key);
    books.charges += 3 * price;
    const leaked = await post("/leaked-keys", { api_key: second });
    expect(leaked.customer_id).toBe(id);
    expectStatus(await generate(second), 401);
    expectStatus(await unlucky.call("POST", "/leaked-keys", { api_key: "sk_of_nobody_else" }), 404);

    await expect
      .poll(
        async () => {
          await stage.gateway.request("GET", `/api/v1/tasks/${task}`, { key: leaked.api_key });
          return (await stage.manage("GET", `/tasks/${task}`)).body.status;
        },
        { timeout: 60_000, interval: 500 },
      )
      .toBe("completed");
    for (let nth = 0; nth < 2; nth++)
      await post(`/customers/${id}/complaints`, { task_id: task, reason: "black frames" });
    books.refunds += price;

    for (let nth = 0; nth < 2; nth++) {
      const back = await post(`/customers/${id}/orders/2/charged-back`, { reason: "stolen card" });
      expect(back).toEqual({ reversed: 100, balance: 480 });
    }
    books.reversals += 100;
    const none = await unlucky.call("POST", `/customers/${id}/orders/9/charged-back`, {
      reason: "stolen card",
    });
    expectStatus(none, 404);

    await post(`/customers/${id}/close`);
    expectStatus(await generate(leaked.api_key), 403);
    expectStatus(await unlucky.call("POST", `/customers/${id}/orders/3/paid`, { package: "basic" }), 409);

    const { body: statement } = await unlucky.call("GET", `/customers/${id}/statements/${month}`);
    const closing = books.purchases - books.charges + books.refunds - books.reversals;
    const none_of = { opening: 0, trials: 0, goodwill: 0, adjustments: 0 };
    expect(statement).toMatchObject({ ...none_of, ...books, closing, amounts_paid: { USD: "49.80" } });
    const { data } = (await stage.manage("GET", `/accounts/${id}/transactions?limit=100`)).body;
    expect(data.reduce((sum: number, { amount }: { amount: number }) => sum + amount, 0)).toBe(closing);
    const writes = [...proxy.lost].map((write) => write.replace("/manage/v1", ""));
    for (const write of ["POST /accounts/*/reversals", "POST /accounts/*/keys/*/revoke", "PATCH /accounts/*"])
      expect(writes).toContain(write);
  } finally {
    await unlucky.stop();
    await proxy.stop();
  }
});

test("a call that is told to wait is repeated once that time is over", async () => {
  let firstMs: number | undefined;
  await using server = createServer((_req, res) => {
    firstMs ??= performance.now();
    const isEarly = performance.now() - firstMs < 2000;
    res.writeHead(isEarly ? 429 : 200, { "Content-Type": "application/json", "Retry-After": "2" });
    res.end(isEarly ? "{}" : JSON.stringify({ status: "suspended" }));
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const waiting = await givenShop(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  try {
    expectStatus(await waiting.call("POST", "/customers/cus_1/suspend"), 200);
  } finally {
    await waiting.stop();
  }
});
