import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectStatus } from "../support/gateway.ts";
import { givenManageStage, type ManageStage } from "./manage-stage.ts";

// Guarantee: what a call may not say is refused before anything is done, and the answer names what is wrong.

let stage: ManageStage;
beforeAll(async () => {
  stage = await givenManageStage();
});
afterAll(() => stage.stop());

describe("times", () => {
  const LEAP_SECOND = "2027-06-30T23:59:60Z";

  test("a leap second is refused as an expiry, and nothing of it reaches the audit", async () => {
    const account = await stage.givenAccount();
    const { key_id } = await stage.givenKey(account);
    const keys = `/accounts/${account}/keys`;
    const body = { expires_at: LEAP_SECOND };
    const headers = { "Idempotency-Key": "leap" };
    const refused = [
      await stage.manage("POST", keys, { body, headers }),
      await stage.manage("PATCH", `${keys}/${key_id}`, { body }),
      await stage.manage("POST", "/tokens", { body: { ...body, label: "x", scopes: ["tokens:write"] } }),
    ];
    for (const reply of refused) {
      expectStatus(reply, 400);
      expect(reply.body.errors[0].path).toBe("/expires_at");
    }
    expectStatus(await stage.manage("GET", `/audit?account_id=${account}`), 200);
  });

  test.each(["2026-02-31", "2026-02-31T00:00:00Z", "2027-06-30T23:59:60Z", "2026-04-31T12:00:00+02:00"])(
    "from=%s is no time",
    async (from) => {
      const account = await stage.givenAccount();
      const path = `/accounts/${account}/transactions?from=${encodeURIComponent(from)}`;
      const reply = await stage.manage("GET", path);
      expectStatus(reply, 400);
      expect(reply.body.errors[0].path).toBe("?from");
    },
  );
});
