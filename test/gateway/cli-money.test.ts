import { afterAll, beforeAll, expect, test } from "vitest";
import { json, refusal, runHere } from "../support/cli.ts";
import { until } from "../support/gateway.ts";
import { priceListsOf } from "../support/prices.ts";
import { randomId } from "../support/store.ts";
import { givenManageStage, type ManageStage } from "./manage-stage.ts";
import { BOAT, TEXT_TO_VIDEO } from "./spec-stage.ts";

// Finance and support on the command line, by the routes of the management API.

let stage: ManageStage;
beforeAll(async () => {
  const priceLists = priceListsOf({ "gen2/text-to-video": WRONG });
  stage = await givenManageStage({ behaviour: { durationMs: 0 }, config: { priceLists } });
});
afterAll(() => stage.stop());

const MINUTE_MS = 60_000;
/** A list price that no other test has: its accounts are among those that spent most. */
const WRONG = 3900;
const inMinutes = (minutes: number): string => new Date(Date.now() + minutes * MINUTE_MS).toISOString();

/** A charge of 7800 credits, or what the multiplier makes of the list price, of a task that has ended. */
async function givenWrongCharge(multiplier = 2) {
  const accountId = await stage.givenAccount(10_000);
  await stage.manage("PATCH", `/accounts/${accountId}`, { body: { price_multiplier: multiplier } });
  const { key, key_id: keyId } = await stage.givenKey(accountId);
  const { body } = await stage.gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT });
  const poll = () => stage.gateway.request("GET", `/api/v1/tasks/${body.data.task_id}`, { key });
  await until(async () => (await poll()).body.data.status === "completed", "the end of the task");
  return { accountId, key, keyId };
}

test("a wrong price is corrected once, and the command says what it found before and after", async () => {
  const { accountId } = await givenWrongCharge();
  const period = ["--from", inMinutes(-5), "--to", inMinutes(5)];
  const terms = [...period, "--prices", `gen2/text-to-video:${WRONG}:500`, "--reason", "wrong price"];
  const correct = ["credits", "correct", ...terms, "--reference", randomId("fix")];
  const balance = async () => (await json("accounts", "show", accountId)).balance;
  expect(await json(...correct, "--dry-run")).toMatchObject({ charges: 1, corrected: 0, credits: 6800 });
  expect(await balance()).toBe(2200);
  expect((await runHere([...correct, "--dry-run"])).stdout).toContain("6800 credits would be given back");
  expect(await json(...correct)).toMatchObject({ corrected: 1, repeated: 0, credits: 6800 });
  expect(await json(...correct)).toMatchObject({ corrected: 0, repeated: 1, credits: 0 });
  expect(await balance()).toBe(9000);
  expect(await refusal(...correct, "--prices", "gen2/text-to-video")).toContain("endpoint:charged:correct");
});

test("transactions of all accounts, and the accounts that spent most", async () => {
  // Accounts of all tests are in this list, which has 100 places.
  const { accountId } = await givenWrongCharge(2.55);
  const { transactions } = await json("credits", "transactions", "--kind", "charge", "--limit", "100");
  expect(transactions).toContainEqual(expect.objectContaining({ account_id: accountId, amount: -9945 }));
  expect((await runHere(["credits", "transactions"])).stdout).toContain(accountId);
  const top = async () => (await json("accounts", "top", "--limit", "100")).accounts;
  const own = { account_id: accountId, credits: 9945 };
  await until(
    async () =>
      (await top()).some((row: typeof own) => row.account_id === accountId && row.credits === own.credits),
    "the roll-up of what it spent",
  );
});

test("when and why a key was refused", async () => {
  const { key, keyId } = await givenWrongCharge();
  const headers = { "x-request-id": randomId("order") };
  const { status } = await stage.gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT, headers });
  expect(status).toBe(402);
  const refusals = async (...more: string[]) => (await json("keys", "refusals", keyId, ...more)).refusals;
  await until(async () => (await refusals()).length === 1, "the refusal in the list");
  const byId = await refusals("--request-id", headers["x-request-id"]);
  expect(byId).toMatchObject([
    { outcome: "insufficient_credits", client_request_id: headers["x-request-id"] },
  ]);
  expect(await refusals("--outcome", "rate_limited")).toEqual([]);
});
