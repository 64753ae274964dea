import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, expect, test } from "vitest";
import { expectStatus, type Reply, send } from "../support/gateway.ts";
import { ADMIN_TOKEN, givenManageStage, type ManageStage } from "./manage-stage.ts";
import { BOAT, TEXT_TO_VIDEO } from "./spec-stage.ts";

// Guarantee: examples/shop does what its README says, against a real gateway, with a token that may do just that.

const FOLDER = join(import.meta.dirname, "../../examples/shop");
const SCOPES = [
  "accounts:read",
  "accounts:write",
  "keys:write",
  "credits:write",
  "tasks:read",
  "tasks:write",
  "usage:read",
];

let stage: ManageStage;
let shop: ChildProcess;
let url: string;
beforeAll(async () => {
  stage = await givenManageStage();
  const token = await stage.givenToken(SCOPES);
  const env = { ...process.env, TOLLGATE_URL: stage.gateway.adminUrl, TOLLGATE_TOKEN: token, PORT: "0" };
  shop = spawn(process.execPath, ["shop.ts"], { cwd: FOLDER, env, stdio: ["ignore", "pipe", "inherit"] });
  const [line] = (await once(createInterface(shop.stdout!), "line")) as [string];
  url = /http:\S+/.exec(line)![0];
});
afterAll(async () => {
  shop.kill();
  await once(shop, "exit");
  await stage.stop();
});

const call = (method: string, path: string, body?: object): Promise<Reply> =>
  send(url, method, path, { ...(body && { body }) });
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
