import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectStatus } from "../support/gateway.ts";
import { givenManageStage, type ManageStage } from "./manage-stage.ts";
import { BOAT, TEXT_TO_VIDEO } from "./spec-stage.ts";

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

  test.each(["/audit", "/transactions", "/accounts/{account}/timeline", "/accounts/{account}/transactions"])(
    "before 1970 there is nothing in %s",
    async (path) => {
      const account = await stage.givenAccount();
      const reply = await stage.manage("GET", `${path.replace("{account}", account)}?to=1960-01-01`);
      expectStatus(reply, 200);
      expect(reply.body).toMatchObject({ data: [], next_cursor: null });
    },
  );
});

describe("texts", () => {
  test.each(["C:\\udata", "\\ud83d", "pair \u{1f600}"])("%s is a text like any other", async (folder) => {
    const made = await stage.manage("POST", "/accounts", { body: { metadata: { folder, [folder]: 1 } } });
    expectStatus(made, 201);
    expect(made.body.metadata).toEqual({ folder, [folder]: 1 });
  });

  test.each(['{"half": "\\ud800"}', '{"\\udc00": 1}', '{"in": [{"a": ["\\ud800x"]}]}'])(
    "half of a surrogate pair is refused in metadata %s",
    async (metadata) => {
      const body = `{"metadata": ${metadata}}`;
      const headers = { "content-type": "application/json" };
      expectStatus(await stage.manage("POST", "/accounts", { body, headers }), 400);
    },
  );
});

// Guarantee: what a backend reads of its metadata is what it wrote, also an id that is a number.
test.each(["1234567890123456789", "-9007199254740993", "1e400"])(
  "metadata with the number %s, which would be stored as another one, is refused",
  async (number) => {
    const account = await stage.givenAccount();
    const headers = { "content-type": "application/json" };
    const metadata = `"metadata": {"crm": [{"id": ${number}}]}`;
    for (const refused of [
      await stage.manage("PATCH", `/accounts/${account}`, { body: `{${metadata}}`, headers }),
      await stage.manage("POST", `/accounts/${account}/grants`, {
        body: `{"credits": 1, "reference": "r", ${metadata}}`,
        headers,
      }),
    ]) {
      expectStatus(refused, 400);
      expect(refused.body.errors).toMatchObject([{ path: "/metadata" }]);
    }
    const kept = { metadata: { crm: [{ id: Number.MAX_SAFE_INTEGER, rate: 0.25 }] } };
    const made = await stage.manage("PATCH", `/accounts/${account}`, { body: kept });
    expect(made.body).toMatchObject({ ...kept, balance: 0 });
  },
);

test("what follows a second question mark belongs to the query", async () => {
  expectStatus(await stage.manage("GET", "/accounts?limit=1?status=closed"), 400);
  expectStatus(await stage.manage("GET", "/accounts?prefix=a?&limit=1"), 400);
});

describe("bodies of routes that take none", () => {
  test("one with a field, of another type or too large is refused, and nothing is done", async () => {
    const account = await stage.givenAccount();
    const { key_id } = await stage.givenKey(account);
    const path = `/accounts/${account}/keys/${key_id}`;
    const revoke = (body: unknown, headers = {}) => stage.manage("POST", `${path}/revoke`, { body, headers });
    const later = await revoke({ at: "2030-01-01T00:00:00Z" });
    expectStatus(later, 400);
    expect(later.body.errors[0].path).toBe("/at");
    expectStatus(await revoke("at once", { "content-type": "text/plain" }), 415);
    expectStatus(await revoke("x".repeat(70_000)), 413);
    expectStatus(await revoke({}, { "content-encoding": "gzip" }), 415);
    expect((await stage.manage("GET", path)).body.revoked_at).toBeNull();
  });

  test.each([undefined, {}])("%j is none", async (body) => {
    const account = await stage.givenAccount();
    const { key_id } = await stage.givenKey(account);
    // No encoding, whose name is in any case. RFC 9110 section 8.4.1.
    const headers = { "content-encoding": "Identity" };
    const path = `/accounts/${account}/keys/${key_id}/revoke`;
    expectStatus(await stage.manage("POST", path, { body, headers }), 200);
  });
});

describe("what is wrong", () => {
  test.each([
    ["/accounts?cursor=abc", "?cursor"],
    ["/accounts?prefix=*", "?prefix"],
    ["/accounts?limit=0", "?limit"],
    ["/accounts?pre_fix=a", "?pre_fix"],
    ["/audit?cursor=abc", "?cursor"],
  ])("GET %s names the parameter %s", async (path, name) => {
    const { body } = await stage.manage("GET", path);
    expect(body.errors[0].path).toBe(name);
  });

  test("a write names the field, or the header", async () => {
    const account = await stage.givenAccount();
    const errorsOf = async (method: string, path: string, request: object) =>
      (await stage.manage(method, path, request)).body.errors[0].path;
    const limits = { limits: { rate_limit: -1 } };
    expect(await errorsOf("PATCH", `/accounts/${account}`, { body: limits })).toBe("/limits/rate_limit");
    const zero = { amount: 0, reason: "none", reference: "r" };
    expect(await errorsOf("POST", `/accounts/${account}/adjustments`, { body: zero })).toBe("/amount");
    const keys = `/accounts/${account}/keys`;
    const headers = { "Idempotency-Key": "one" };
    expect(await errorsOf("POST", keys, { body: {} })).toBe("Idempotency-Key");
    await stage.manage("POST", keys, { body: {}, headers });
    expect(await errorsOf("POST", keys, { body: { label: "x" }, headers })).toBe("Idempotency-Key");
    const match = { body: { label: "x" }, headers: { "If-Match": "one" } };
    expect(await errorsOf("PATCH", `/accounts/${account}`, match)).toBe("If-Match");
  });
});

test.each(["", "/use", "/refusals", "/keys", "/transactions", "/tasks", "/usage"])(
  "GET of an account that there cannot be is 404, also below it: %s",
  async (rest) => {
    const reply = await stage.manage("GET", `/accounts/a%2Fb${rest}`);
    expectStatus(reply, 404);
    expect(reply.body.detail).toBe("there is no account a/b");
  },
);

test.each([".", ".."])("no account is called %s, which no client can put in a path", async (account_id) => {
  const reply = await stage.manage("POST", "/accounts", { body: { account_id } });
  expectStatus(reply, 400);
  expect(reply.body.errors[0].path).toBe("/account_id");
});

// Guarantee: whoever calls the API is told what the API can do; commands are the command line's.
test("an answer names no commands", async () => {
  const account = await stage.givenAccount(100);
  const { key, key_id } = await stage.givenKey(account);
  const made = await stage.gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT });
  const path = `/accounts/${account}/keys/${key_id}`;
  await stage.manage("POST", `${path}/rotate`, { body: { overlap: "1h" } });
  const again = await stage.manage("POST", `${path}/rotate`, { body: {} });
  await stage.manage("POST", `${path}/revoke`);
  const refund = { reason: "black", reference: "r" };
  const replies = [
    again,
    await stage.manage("PATCH", path, { body: { label: "x" } }),
    await stage.manage("POST", `/tasks/${made.body.data.task_id}/refund`, { body: refund }),
    await stage.manage("POST", "/accounts/nobody/grants", { body: { credits: 1, reference: "r" } }),
  ];
  expect(replies.map(({ status }) => status)).toEqual([409, 409, 409, 404]);
  for (const { body } of replies) expect(body.detail).not.toMatch(/tollgate|(?<![\w-])--/);
});

test("a reason may have any letters", async () => {
  const account = await stage.givenAccount(5);
  const body = { amount: -1, reason: "falsche Gr\u00f6\u00dfe", reference: "r" };
  const reply = await stage.manage("POST", `/accounts/${account}/adjustments`, { body });
  expectStatus(reply, 201);
  expect(reply.body.reason).toBe(body.reason);
});
