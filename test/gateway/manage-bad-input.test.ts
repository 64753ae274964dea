import { afterAll, beforeAll, expect, test } from "vitest";
import { givenManageStage, type ManageStage } from "./manage-stage.ts";

// Guarantee: bad input has a code of its own, and the answer names the parameter, its rule and what may be meant; nothing is changed.

let stage: ManageStage;
let accountId: string;
beforeAll(async () => {
  stage = await givenManageStage();
  accountId = await stage.givenAccount(5);
});
afterAll(() => stage.stop());

const A_TIME = "a time with its zone such as 2026-10-31T12:00:00Z";
const A_DAY = "a day such as 2026-10-31";

const correction = (times: { from?: unknown; to?: unknown }) => ({
  ...{ from: "2026-11-01T10:00:00Z", to: "2026-11-01T10:30:00Z", ...times },
  prices: [{ endpoint: "gen2/text-to-video", charged: 5, correct: 3 }],
  ...{ reference: "wrong price", reason: "a typo" },
});

const multiplierRule =
  "price_multiplier must be a number from 0.01 to 10 with two decimals at most, such as 0.8 for 80 percent of the list price";
const waitRule = "retry_after must be a whole number of seconds from 1 to 86400, which is a day";

test.each([
  ...[-1, 0, 0.001, 0.123, 11, "80%", "0.8", true].map((value) => [
    ...["PATCH /accounts/{account}", { price_multiplier: value }, "invalid_multiplier", multiplierRule],
  ]),
  ...[-1, 0, 1.5, 86_401, 1e12, "60"].map((value) => [
    ...["PUT /maintenance", { on: true, retry_after: value }, "invalid_retry_after", waitRule],
  ]),
  ...["from", "to"].flatMap((name) =>
    [
      ["2026-11-01T10:00:00", `; 2026-11-01T10:00:00 has no zone; in UTC it is 2026-11-01T10:00:00Z`],
      ["2026-11-01", "; 2026-11-01 is a day, which begins in UTC at 2026-11-01T00:00:00Z"],
      ["2026-02-30T10:00:00Z", "; 2026-02 has no day 30"],
      ["2026-13-01T10:00:00Z", "; 2026 has no month 13"],
      ["soon", ""],
    ].map(([text, lack]) => [
      ...[
        "POST /corrections",
        correction({ [name]: text }),
        "invalid_time",
        `${name} must be ${A_TIME}${lack}`,
      ],
    ]),
  ),
  [
    ...["POST /corrections", correction({ to: "2026-11-01T09:00:00Z" })],
    ...["invalid_time", "from must not come after to"],
  ],
  ...["POST /accounts/{account}/keys", "POST /accounts/{account}/keys/import", "POST /tokens"].flatMap(
    (target) =>
      [
        [
          "2099-11-01T10:00:00",
          `be ${A_TIME}; 2099-11-01T10:00:00 has no zone; in UTC it is 2099-11-01T10:00:00Z`,
        ],
        ["2099-11-01", `be ${A_TIME}; 2099-11-01 is a day, which begins in UTC at 2099-11-01T00:00:00Z`],
        ["2099-02-29T10:00:00Z", `be ${A_TIME}; 2099-02 has no day 29`],
        ["2020-01-01T00:00:00Z", "be in the future"],
      ].map(([expires_at, rule]) => [
        target,
        target === "POST /tokens"
          ? { label: "brief", scopes: ["usage:read"], expires_at }
          : { ...(target.endsWith("import") && { key: "sk_live_of_a_shop" }), expires_at },
        ...["invalid_time", `expires_at must ${rule}`],
      ]),
  ),
  ...["/transactions", "/accounts/{account}/transactions", "/accounts/{account}/timeline", "/audit"].flatMap(
    (path) =>
      [
        ["from=2026-02-30", `from must be ${A_DAY}, or ${A_TIME}; 2026-02 has no day 30`],
        [
          "to=2026-11-01T10:00:00",
          `to must be ${A_DAY}, or ${A_TIME}; 2026-11-01T10:00:00 has no zone; in UTC it is 2026-11-01T10:00:00Z`,
        ],
        ["from=2026-11-02&to=2026-11-01", "from must not come after to"],
        ["from=2026-11-02T10:00:00Z&to=2026-11-02T09:00:00Z", "from must not come after to"],
      ].map(([query, detail]) => [`GET ${path}?${query}`, undefined, "invalid_time", detail]),
  ),
  ...["/usage", "/top-accounts", "/accounts/{account}/usage"].flatMap((path) =>
    [
      ["from=2026-02-30", `from must be ${A_DAY}; 2026-02 has no day 30`],
      ["from=2026-11-02&to=2026-11-01", "from must not come after to"],
    ].map(([query, detail]) => [`GET ${path}?${query}`, undefined, "invalid_time", detail]),
  ),
  ...["/statements?month=", "/sales?month=", "/accounts/{account}/statements/"].flatMap((path) =>
    [
      ["2026-13", "month must be a month such as 2026-10; 2026 has no month 13"],
      ["2026-02-30", "month must be a month such as 2026-10; 2026-02 has no day 30"],
    ].map(([month, detail]) => [`GET ${path}${month}`, undefined, "invalid_month", detail]),
  ),
  [
    ...["POST /accounts/{account}/keys", { allowed_addresses: ["10.0.0.1/8"] }, "invalid_addresses"],
    "10.0.0.1/8 does not begin its range; write 10.0.0.0/8, or 10.0.0.1/32 for the one address",
  ],
  [
    ...["POST /accounts/{account}/keys", { allowed_addresses: ["acme.example"] }, "invalid_addresses"],
    "acme.example is no address range; write one such as 203.0.113.0/24",
  ],
  [
    ...["POST /accounts/{account}/keys", { allowed_endpoints: ["gen2/text-to-vide"] }, "unknown_endpoint"],
    "gen2/text-to-vide is no generation endpoint; did you mean gen2/text-to-video?",
  ],
  [
    ...["POST /accounts/{account}/keys", { tier: "standart" }, "unknown_tier"],
    "the config has no tier standart; did you mean standard?",
  ],
  [
    ...["GET /accounts?metadata.plan=pro", undefined, "not_indexed"],
    "metadata.plan is not indexed, none is; add the name to accounts.indexed_metadata in the configuration, which takes at most 4",
  ],
  [
    ...["GET /transactions?cursor=abc", undefined, "invalid_cursor"],
    "the cursor is not one of an earlier page of this list",
  ],
  // Any text behind them would be read backwards, in the console, a file of CSV and a customer's program.
  ...["\u202a", "\u202e", "\u2066", "\u2069"].flatMap((turning) => [
    ...["POST /accounts/{account}/keys", "PATCH /accounts/{account}"].map((target) => [
      ...[target, { label: `paid ${turning}002 dedna` }, "invalid"],
      "a label has 1 to 100 characters on one line, without those that turn its direction",
    ]),
    [
      ...["POST /accounts/{account}/adjustments"],
      { amount: 1, reference: "r", reason: `paid ${turning}002 dedna` },
      "invalid",
      "a reason has 1 to 200 printable characters on one line, without those that turn its direction",
    ],
  ]),
  // Of several kinds, and of unknown fields, it is `invalid`.
  [
    ...["POST /accounts/{account}/keys", { expires_at: "soon", allowed_addresses: [] }, "invalid"],
    `allowed_addresses must have at least 1 item`,
  ],
  ["GET /refusals?from=2026-11-01", undefined, "invalid", "from is not a known parameter"],
  ["POST /accounts", { price_multiplier: -1 }, "invalid", "price_multiplier is not a known parameter"],
] as [string, object | undefined, string, string][])(
  "%s %j is 400 %s: %s",
  async (target, body, code, detail) => {
    const [method = "", path = ""] = target.replace("{account}", accountId).split(" ");
    const before = await whole();
    const reply = await stage.manage(method, path, {
      ...(body && { body }),
      ...(path.endsWith("/keys") && { headers: { "Idempotency-Key": "a-key" } }),
    });
    expect(reply).toMatchObject({ status: 400, body: { code, detail } });
    expect(reply.body.errors.length).toBeGreaterThan(0);
    for (const { message } of reply.body.errors) expect(message).not.toBe("");
    expect(reply.body.errors[0]).toMatchObject({ message: detail });
    expect(await whole()).toEqual(before);
  },
);

/** All that these calls could have changed. */
async function whole() {
  const paths = [`/accounts/${accountId}`, `/accounts/${accountId}/keys`, "/maintenance", "/tokens"];
  const replies = await Promise.all(paths.map((path) => stage.manage("GET", path)));
  return replies.map(({ status, body }) => ({ status, body }));
}

test.each([
  [{ amount_paid: "9.90", currency: "ZZZ" }, "/currency"],
  [{ amount_paid: "9.901", currency: "HUF" }, "/amount_paid"],
  [{ currency: "USD" }, "/currency"],
])("a grant with %j is a problem of %s", async (money, path) => {
  const body = { credits: 5, reference: "r", ...money };
  const reply = await stage.manage("POST", `/accounts/${accountId}/grants`, { body });
  expect(reply).toMatchObject({ status: 400, body: { code: "invalid_money", errors: [{ path }] } });
});
