import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { BODY_EXAMPLES } from "../../src/admin/api/examples.ts";
import { ROUTES } from "../../src/admin/api/routes.ts";
import { GENERATION_ENDPOINTS, type GenerationEndpoint } from "../../src/domain/endpoints.ts";
import { expectStatus, type Reply, until } from "../support/gateway.ts";
import { givenManageStage, type ManageStage } from "./manage-stage.ts";
import { sendForm } from "./openapi-stage.ts";
import { BOAT, TEXT_TO_VIDEO } from "./spec-stage.ts";

let stage: ManageStage;
beforeAll(async () => {
  stage = await givenManageStage();
});
afterAll(() => stage.stop());

const secret = (): string => `sk_old_${randomUUID()}`;
const importKey = (account: string, body: object, token?: string): Promise<Reply> =>
  stage.manage("POST", `/accounts/${account}/keys/import`, { body, ...(token !== undefined && { token }) });

// Guarantee: what a key may do is set, shown, changed and audited in one form.
test("endpoints and addresses are stored in one form, shown, changed apart, and audited", async () => {
  const account = await stage.givenAccount(100);
  const made = await stage.givenKey(account, {
    allowed_endpoints: ["/api/v1/gen2/text-to-video", "GEN2/TEXT-TO-VIDEO"],
    allowed_addresses: ["::ffff:10.0.0.0/104"],
  });
  const both = { allowed_endpoints: ["gen2/text-to-video"], allowed_addresses: ["10.0.0.0/8"] };
  expect(made).toMatchObject(both);
  const path = `/accounts/${account}/keys/${made.key_id}`;
  expect((await stage.manage("GET", path)).body).toMatchObject(both);
  expect((await stage.manage("GET", `/accounts/${account}/keys`)).body.data[0]).toMatchObject(both);
  const changed = await stage.manage("PATCH", path, { body: { allowed_addresses: null } });
  expect(changed.body).toMatchObject({ ...both, allowed_addresses: null });
  const { body } = await stage.manage("GET", `/audit?account_id=${account}`);
  expect(body.data[0]).toMatchObject({
    action: "key.patch",
    before: { restrictions: "endpoints=gen2/text-to-video;addresses=10.0.0.0/8" },
    after: { restrictions: "endpoints=gen2/text-to-video" },
  });
});

const SPELLINGS = [
  "gen2/text-to-video",
  "/gen2/text-to-video/",
  "/api/v1/gen2/text-to-video",
  "/api/v1/gen2/text-to-video//",
  "GEN2/Text-To-Video",
  "/API/V1/GEN2/TEXT-TO-VIDEO/",
  "gen2%2Ftext-to-video",
  "%2Fapi%2Fv1%2Fgen2%2Ftext-to-video",
  "POST https://gateway.example/api/v1/gen2/text-to-video",
];

// Guarantee: however an endpoint is spelt, a key may use that one and no other, and so may the key that replaces it.
test.each(SPELLINGS)("a key of %s may use that endpoint only, also once it was rotated", async (spelling) => {
  const account = await stage.givenAccount(1000);
  const made = await stage.givenKey(account, { allowed_endpoints: [spelling] });
  const patched = await stage.givenKey(account, { allowed_endpoints: ["gen2-pro/storyboard"] });
  const path = (id: string) => `/accounts/${account}/keys/${id}`;
  const body = { allowed_endpoints: [spelling] };
  expect((await stage.manage("PATCH", path(patched.key_id), { body })).body).toMatchObject({
    allowed_endpoints: ["gen2/text-to-video"],
  });
  const heir = await stage.manage("POST", `${path(made.key_id)}/rotate`, { body: { overlap: "0s" } });
  expect(heir.body).toMatchObject({ allowed_endpoints: ["gen2/text-to-video"] });
  for (const key of [patched.key, heir.body.key]) {
    for (const endpoint of GENERATION_ENDPOINTS) {
      const reply = await stage.gateway.request("POST", `/api/v1/${endpoint}`, { key, body: BOAT });
      expectStatus(reply, endpoint === "gen2/text-to-video" ? 200 : 403, endpoint);
    }
  }
  for (const endpoint of [spelling.replace(/^POST /, ""), "gen2/text-to-vide"]) {
    const list = await stage.manage(
      "GET",
      `/accounts/${account}/tasks?endpoint=${encodeURIComponent(endpoint)}`,
    );
    if (endpoint.endsWith("vide"))
      expect(list).toMatchObject({ status: 400, body: { code: "unknown_endpoint" } });
    else expect(list.body.data).toHaveLength(2);
  }
});

test.each([
  [{ allowed_endpoints: ["upload"] }, "/allowed_endpoints"],
  [{ allowed_endpoints: [] }, "/allowed_endpoints"],
  [{ allowed_addresses: ["10.0.0.1/8"] }, "/allowed_addresses"],
  [{ allowed_addresses: ["localhost"] }, "/allowed_addresses"],
  [{ allowed_addresses: [] }, "/allowed_addresses"],
])("%j is refused, and nothing is changed", async (body, path) => {
  const account = await stage.givenAccount();
  const key = await stage.givenKey(account);
  const target = `/accounts/${account}/keys/${key.key_id}`;
  const refusals = [
    await stage.manage("PATCH", target, { body }),
    await stage.manage("POST", `/accounts/${account}/keys`, { body, headers: { "Idempotency-Key": "k" } }),
    await importKey(account, { key: secret(), ...body }),
  ];
  for (const refused of refusals) {
    expectStatus(refused, 400);
    expect(refused.body.errors).toMatchObject([{ path }]);
  }
  expect((await stage.manage("GET", `/accounts/${account}/keys`)).body.data).toHaveLength(1);
});

// Guarantee: customers keep their keys when they come to this gateway.
test("a key that exists elsewhere is taken over once, works at once, and is told to nobody else", async () => {
  const account = await stage.givenAccount(100);
  const key = secret();
  const made = await importKey(account, { key, label: "old", limits: { rate_limit: 7 } });
  expectStatus(made, 201);
  expect(made.body).toMatchObject({ label: "old", effective_limits: { rate_limit: 7 } });
  expect(JSON.stringify(made.body)).not.toContain(key);
  expectStatus(await stage.gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT }), 200);
  const again = await importKey(account, { key, label: "another" });
  expectStatus(again, 200);
  expect(again.body).toMatchObject({ key_id: made.body.key_id, label: "old" });

  const others = await stage.givenAccount();
  const refused = await importKey(others, { key });
  expectStatus(refused, 409);
  expect(JSON.stringify(refused.body)).not.toMatch(new RegExp(`${account}|${key}|${made.body.key_id}`));
  expectStatus(await importKey("no-such-account", { key: secret() }), 404);
  for (const bad of ["pk_live_123456", "sk_a b c d e", "sk_"])
    expectStatus(await importKey(account, { key: bad }), 400);
  expectStatus(await importKey(account, { key: secret(), tier: "gold" }), 400);
  expectStatus(await importKey(account, { key: secret(), expires_at: "2020-01-01T00:00:00Z" }), 400);
  const reader = await stage.givenToken(["keys:read"]);
  expectStatus(await importKey(account, { key: secret() }, reader), 403);
});

// Guarantee: an import that is run again is safe, however much later.
test("a repeat of an import is the same after its end has passed", async () => {
  const account = await stage.givenAccount();
  const body = { key: secret(), expires_at: new Date(Date.now() + 1500).toISOString() };
  const made = await importKey(account, body);
  expectStatus(made, 201);
  await until(async () => Date.now() > Date.parse(body.expires_at), "the key to expire");
  const again = await importKey(account, body);
  expectStatus(again, 200);
  expect(again.body).toMatchObject({ key_id: made.body.key_id });
  const others = await importKey(await stage.givenAccount(), body);
  expectStatus(others, 409);
});

test("an account is made with limits, and a key shows what is enforced: the lower of its own and its account's", async () => {
  const account = `t-${randomUUID()}`;
  const created = await stage.manage("POST", "/accounts", {
    body: { account_id: account, limits: { rate_limit: 5, daily_limit: 900 } },
  });
  expectStatus(created, 201);
  const limits = { rate_limit: 5, max_concurrent: null, daily_limit: 900 };
  expect(created.body).toMatchObject({ limits, effective_limits: limits, status: "active" });
  const key = await stage.givenKey(account, { limits: { max_concurrent: 2 } });
  expect(key).toMatchObject({
    status: "active",
    limits: { rate_limit: null, max_concurrent: 2, daily_limit: null },
    effective_limits: { rate_limit: 5, max_concurrent: 2, daily_limit: 500 },
  });
  const { body } = await stage.gateway.request("GET", "/api/v1/credits", { key: key.key });
  expect(body.data.limits).toMatchObject(key.effective_limits);
});

const STATES = ["active", "capped", "suspended", "closed"] as const;
type State = (typeof STATES)[number];

/** An account in a state, with a key and a task. */
async function givenIn(state: State) {
  const account = await stage.givenAccount(5000);
  const key = await stage.givenKey(account, { limits: { max_concurrent: 10 } });
  const made = await stage.gateway.request("POST", TEXT_TO_VIDEO, { key: key.key, body: BOAT });
  expectStatus(made, 200);
  if (state === "capped") {
    const path = `/accounts/${account}/keys/${key.key_id}`;
    expectStatus(await stage.manage("PATCH", path, { body: { monthly_credits: 1 } }), 200);
  } else if (state !== "active") {
    expectStatus(await stage.manage("PATCH", `/accounts/${account}`, { body: { status: state } }), 200);
  }
  return { account, key, taskId: made.body.data.task_id as string };
}

const IMAGE = "https://images.example.com/cat.png";
const GENERATIONS: Record<GenerationEndpoint, object> = {
  "gen2/text-to-video": BOAT,
  "gen2/image-to-video": { imageUrl: IMAGE },
  "gen2-pro/text-to-video": BOAT,
  "gen2-pro/image-to-video": { imageUrl: IMAGE },
  "gen2/watermark-remove": { videoUrl: "https://videos.example.com/v.mp4" },
  "gen2-pro/storyboard": { nFrames: "10", shots: [{ Scene: "a boat", duration: 10 }] },
};

/** HTTP status and code of an answer. */
const OK = "200 200";
const CAPPED = "402 2006";
const BARRED = "403 403";
const UNKNOWN = "404 404";

// Guarantee: what a customer may do in each state of the account is one table.
test.each<[State, Record<string, string>]>([
  ["active", { generate: OK, upload: OK, poll: OK, read: OK, unknown: UNKNOWN }],
  ["capped", { generate: CAPPED, upload: OK, poll: OK, read: OK, unknown: UNKNOWN }],
  ["suspended", { generate: BARRED, upload: BARRED, poll: OK, read: OK, unknown: UNKNOWN }],
  ["closed", { generate: BARRED, upload: BARRED, poll: BARRED, read: BARRED, unknown: BARRED }],
])("the customers' routes while the account is %s", async (state, expected) => {
  const { key: made, taskId } = await givenIn(state);
  const { key } = made;
  const ask = async (method: string, path: string, body?: object): Promise<string> =>
    answered(await stage.gateway.request(method, `/api/v1/${path}`, { key, ...(body && { body }) }));
  const generated = await Promise.all(
    Object.entries(GENERATIONS).map(([endpoint, body]) => ask("POST", endpoint, body)),
  );
  const answers = {
    generate: [...new Set(generated)].join(),
    upload: answered(await sendForm(stage.gateway, key, "GIF89a")),
    poll: await ask("GET", `tasks/${taskId}`),
    read: [...new Set([await ask("GET", "credits"), await ask("GET", "usage")])].join(),
    unknown: await ask("GET", "nothing"),
  };
  expect(answers).toEqual(expected);
});

const answered = ({ status, body }: Reply): string => `${status} ${body.code}`;

/** Last, since they end what others need. */
const ENDINGS = ["refundTask", "releaseTask", "rotateKey", "revokeKey", "changeAccount"];
const ofAccounts = ROUTES.filter(({ path }) => /\{(account|task)\}/.test(path)).sort(
  (a, b) => ENDINGS.indexOf(a.name) - ENDINGS.indexOf(b.name),
);

/** A closed account gets nothing, so there is no grant to reverse. */
const WHEN_CLOSED: Record<string, number> = {
  ...{ grantCredits: 409, createKey: 409, importKey: 409, rotateKey: 409, createWebhook: 409 },
  reverseGrant: 404,
};

// Guarantee: operators can do the same whatever state the account is in, but give nothing to a closed one.
test("every management route of an account answers alike in all states, but those that give to a closed one", async () => {
  const answers = new Map<string, Record<string, number>>();
  for (const state of STATES) {
    const { account, key, taskId } = await givenIn(state);
    const ids: Record<string, string> = { account, key: key.key_id, task: taskId };
    for (const { name, method, path } of ofAccounts) {
      const target = path.replaceAll(/\{(\w+)\}/g, (_, part: string) => ids[part] ?? "missing");
      const body = name === "importKey" ? { key: secret() } : BODY_EXAMPLES[name];
      const headers = name === "createKey" ? { "Idempotency-Key": "k" } : {};
      const { status } = await stage.manage(method, target, { ...(body && { body }), headers });
      answers.set(name, { ...answers.get(name), [state]: status });
    }
  }
  for (const [name, { active, ...others }] of answers) {
    expect(active, name).toBeLessThan(500);
    for (const [state, status] of Object.entries(others)) {
      const expected = (state === "closed" && WHEN_CLOSED[name]) || active;
      expect(status, `${name} ${state}`).toBe(expected);
    }
  }
});
