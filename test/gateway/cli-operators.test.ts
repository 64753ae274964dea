import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { findToken } from "../../src/operations/access/tokens.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { givenCliAccount, json, refusal, runHere } from "../support/cli.ts";
import { openConnection, randomId, type TestConnection, taskOf } from "../support/store.ts";

// Operators on the command line: every action has a name in the audit.

let connection: TestConnection;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());

/** Action and who, oldest first. */
async function audited(accountId: string): Promise<[string, string][]> {
  const { records } = await json("audit", "--account", accountId);
  return records.map(({ action, by }: Record<string, string>) => [action, by]).reverse();
}

test("an account is created, shown, changed and listed", async () => {
  const id = randomId("acc");
  const created = await json("accounts", "create", id, "--label", "Acme", "--metadata", '{"plan":"gold"}');
  const account = { account_id: id, label: "Acme", metadata: { plan: "gold" }, status: "active", balance: 0 };
  expect(created).toMatchObject(account);
  expect(await refusal("accounts", "create", id)).toContain("already");
  const set = ["accounts", "set", id, "--as", "ann"];
  expect((await json(...set, "--alerts", '{"credits_below":[10]}')).alerts).toEqual({ credits_below: [10] });
  const taken = ["--metadata", "", "--label", "", "--alerts", ""];
  const changes = ["--status", "suspended", "--daily-limit", "9", ...taken];
  const changed = await json(...set, ...changes);
  expect(changed).toMatchObject({ status: "suspended", daily_limit: 9 });
  expect([changed.label, changed.metadata, changed.alerts]).toEqual([undefined, undefined, undefined]);
  expect(await json(...set, "--daily-limit", "none")).not.toHaveProperty("daily_limit");
  expect(await json("accounts", "show", id)).toMatchObject({ account_id: id, status: "suspended" });
  expect((await json("accounts", "list", "--prefix", id)).accounts).toMatchObject([
    { account_id: id, balance: 0 },
  ]);
  const label = randomId("label");
  await json(...set, "--label", label);
  const found = await json("accounts", "list", "--label", label.toUpperCase(), "--status", "suspended");
  expect(found.accounts).toMatchObject([{ account_id: id, label, status: "suspended" }]);
  expect((await json("accounts", "list", "--label", label, "--status", "closed")).accounts).toEqual([]);
  expect((await runHere(["accounts", "list", "--prefix", id])).stdout).toContain("suspended");
  expect(await refusal(...set)).toContain("nothing to change");
  expect(await refusal(...set, "--status", "asleep")).toContain("suspended");
  expect(await refusal(...set, "--metadata", "{")).toContain("JSON object");
  expect(await refusal("accounts", "show", randomId("acc"))).toContain("no account");
  expect(await audited(id)).toEqual([
    ["account.create", `cli ${userInfo().username}`],
    ["account.patch", "cli ann"],
    ["account.patch", "cli ann"],
    ["account.patch", "cli ann"],
    ["account.patch", "cli ann"],
  ]);
});

// Guarantee: what the management API would refuse is refused here, too: a script met such a threshold with each charge, and failed.
test.each([
  ["--alerts", '{"credits_below":["["]}', "alerts.credits_below[0] must be an integer"],
  ["--alerts", '{"credits_below":[1.5]}', "alerts.credits_below[0] must be an integer"],
  ["--alerts", '{"credits_below":"100"}', "alerts.credits_below must be an array"],
  ["--alerts", '{"credit_below":[100]}', "did you mean credits_below?"],
  ["--alerts", "[100]", "alerts must be an object or null"],
  ["--metadata", "0", "metadata must be an object or null"],
  ["--metadata", '{"plan":"pro","plan":"basic"}', "It must be a JSON object"],
])("accounts set %s %s changes nothing", async (option, text, why) => {
  const id = randomId("acc");
  const account = await json("accounts", "create", id, "--metadata", '{"plan":"gold"}');
  expect(await refusal("accounts", "set", id, option, text)).toContain(why);
  expect(await json("accounts", "show", id)).toEqual(account);
  expect(await json("accounts", "set", id, "--metadata", "null")).not.toHaveProperty("metadata");
});

test("a key has a label and a cap of the month, and every change of it a name", async () => {
  const { accountId, keyId } = await givenCliAccount(connection);
  const by = ["--as", "bob"];
  const set = (...more: string[]) => json("keys", "set", keyId, ...by, ...more);
  expect(await set("--label", "web", "--monthly-credits", "900")).toMatchObject({
    label: "web",
    monthly_credits: 900,
  });
  expect(await set("--monthly-credits", "none", "--label", "")).not.toHaveProperty("monthly_credits");
  const made = await json(
    "keys",
    "create",
    "--account",
    accountId,
    "--label",
    "b",
    "--monthly-credits",
    "5",
    ...by,
  );
  expect(await json("keys", "show", made.key_id)).toMatchObject({ label: "b", monthly_credits: 5 });
  const rotated = await json("keys", "rotate", made.key_id, ...by);
  expect(await json("keys", "show", rotated.key_id)).toMatchObject({ label: "b", monthly_credits: 5 });
  await json("keys", "revoke", rotated.key_id, ...by);
  await json("keys", "import", `sk_${randomId("key")}`, "--account", accountId, ...by);
  await json("credits", "grant", accountId, "5", "--reference", "r-1", ...by);
  expect((await audited(accountId)).slice(-8)).toEqual(
    [
      ...["key.patch", "key.patch", "key.create", "key.create", "key.rotate", "key.revoke"],
      ...["key.create", "credits.grant"],
    ].map((action) => [action, "cli bob"]),
  );
  expect(await refusal("keys", "revoke", keyId, "--as", "two\nlines")).toContain("printable");
});

test("credits are adjusted up and down, with a reason, once per reference", async () => {
  const { accountId } = await givenCliAccount(connection);
  const adjust = (amount: string, reference: string) => [
    "credits",
    "adjust",
    accountId,
    amount,
    "--reason",
    "outage",
    "--reference",
    reference,
    "--as",
    "ann",
  ];
  expect(await json(...adjust("-1000", "r-1"))).toMatchObject({
    ...{ outcome: "adjusted", account_id: accountId, amount: -1000, balance: 0, reference: "r-1" },
    transaction: { type: "consume", amount: -1000, reason: "outage", by: "cli ann" },
  });
  expect(await refusal(...adjust("-1", "r-2"))).toContain("can spend 0");
  expect(await json(...adjust("7", "r-3"))).toMatchObject({ balance: 7, transaction: { type: "recharge" } });
  expect((await runHere(adjust("7", "r-3"))).stdout).toContain("nothing is changed");
  expect(await refusal(...adjust("0", "r-4"))).toContain("not 0");
  expect(await refusal("credits", "adjust", accountId, "5", "--reference", "r-5")).toContain("--reason");
  expect((await json("credits", "show", accountId)).recent_transactions).toMatchObject([
    { type: "recharge", amount: 7, reason: "outage" },
    { type: "consume", amount: -1000, reason: "outage" },
    { type: "recharge", amount: 1000 },
  ]);
  const { entries } = await json("ledger", "export", "--account", accountId);
  expect(entries[1]).toMatchObject({ amount: -1000, by: "cli ann", reason: "outage" });
});

test("accounts are listed by their metadata, under the names of the configuration", async () => {
  const [id, plan] = [randomId("acc"), `a=${randomId("plan")}`];
  await json("accounts", "create", id, "--metadata", JSON.stringify({ plan, region: "eu" }));
  const dir = await mkdtemp(join(tmpdir(), "tollgate-metadata-"));
  const env = { TOLLGATE_CONFIG: join(dir, "tollgate.yaml") };
  await writeFile(env.TOLLGATE_CONFIG, "accounts: { indexed_metadata: [plan, region] }\n");
  try {
    const list = (...values: string[]) =>
      runHere(["accounts", "list", "--json", ...values.flatMap((value) => ["--metadata", value])], env);
    const ids = async (...values: string[]) =>
      JSON.parse((await list(...values)).stdout).accounts.map(
        (row: { account_id: string }) => row.account_id,
      );
    expect(await ids(`plan=${plan}`, "region=eu")).toEqual([id]);
    expect(await ids(`plan=${plan}`, "region=")).toEqual([]);
    expect((await list("shop=x")).stderr).toContain("these are: plan, region");
    expect((await list("plan")).stderr).toContain("plan=pro");
  } finally {
    await rm(dir, { recursive: true });
  }
});

test("packages are those of the configuration", async () => {
  const { accountId } = await givenCliAccount(connection);
  const dir = await mkdtemp(join(tmpdir(), "tollgate-packages-"));
  const file = join(dir, "tollgate.yaml");
  await writeFile(file, "packages: { starter: 50 }\n");
  try {
    const grant = (name: string) =>
      runHere(["credits", "grant", accountId, "--package", name, "--reference", `order-${name}`, "--json"], {
        TOLLGATE_CONFIG: file,
      });
    expect(JSON.parse((await grant("starter")).stdout)).toMatchObject({ amount: 50, balance: 1050 });
    expect(await grant("premium")).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("the config has no package premium; it has starter"),
    });
  } finally {
    await rm(dir, { recursive: true });
  }
});

test("a completed task is refunded once", async () => {
  const { accountId, stage, ref } = await givenCliAccount(connection);
  const request = stage.request(ref, { price: 30 });
  await stage.givenTask(request);
  const refund = (reference: string, id = taskOf(request)) => [
    "tasks",
    "refund",
    id,
    "--reason",
    "black",
    "--reference",
    reference,
    "--as",
    "ann",
  ];
  expect(await refusal(...refund("r-1"))).toContain("tasks release");
  await stage.observe(request, "completed");
  expect(await json(...refund("r-1"))).toMatchObject({
    ...{ outcome: "refunded", account_id: accountId, request_id: request.requestId, balance: 1000 },
    transaction: { type: "recharge", amount: 30, reason: "refund", note: "black", by: "cli ann" },
  });
  expect((await runHere(refund("r-1", request.requestId))).stdout).toContain("nothing is changed");
  expect(await refusal(...refund("r-2"))).toContain("refunded before");
  expect((await audited(accountId)).at(-1)).toEqual(["task.refund", "cli ann"]);
  expect(await verifyLedger(oneNode(connection.redis), { accountIds: [accountId] })).toMatchObject({
    ok: true,
  });
});

test("a token is shown once, listed, and ends when it is revoked", async () => {
  const label = randomId("label");
  const create = ["tokens", "create", "--label", label, "--as", "ann"];
  const made = await json(...create, "--scopes", "keys:read,credits:write", "--accounts", "acme,globex");
  expect(made).toMatchObject({
    token: expect.stringMatching(/^tgm_[\w-]{43}$/),
    scopes: "keys:read,credits:write",
    accounts: "acme,globex",
  });
  const nodes = oneNode(connection.redis);
  expect(await findToken(nodes, made.token)).toMatchObject({ tokenId: made.token_id, label });
  expect(await refusal("tokens", "revoke", made.token)).not.toContain(made.token);
  const { tokens } = await json("tokens", "list");
  const listed = tokens.find(({ token_id }: { token_id: string }) => token_id === made.token_id);
  expect(listed).toMatchObject({ label });
  expect(JSON.stringify(tokens)).not.toContain("tgm_");
  expect((await runHere(["tokens", "list"])).stdout).toContain(made.token_id);
  expect(await json("tokens", "revoke", made.token_id, "--as", "bob")).toHaveProperty("revoked_at");
  expect(await findToken(nodes, made.token)).toBeUndefined();
  expect(await refusal(...create, "--scopes", "keys:eat")).toContain("keys:read");
  expect(await refusal("tokens", "revoke", "tok_none")).toContain("no token");
  const { records } = await json("audit", "--limit", "200");
  const own = records.filter(({ target }: { target: string }) => target === made.token_id).reverse();
  expect(own).toMatchObject([
    { action: "token.create", by: "cli ann", after: { label, scopes: ["keys:read", "credits:write"] } },
    { action: "token.revoke", by: "cli bob", before: { revoked_at: null } },
  ]);
  expect(JSON.stringify(own)).not.toContain("sha256");
});

test("the audit is paged, and readable", async () => {
  const { accountId, keyId } = await givenCliAccount(connection);
  await json("keys", "set", keyId, "--label", "web");
  const first = await json("audit", "--account", accountId, "--limit", "1");
  expect(first.records).toMatchObject([{ action: "key.patch", target: keyId, after: { label: "web" } }]);
  const second = await json("audit", "--account", accountId, "--limit", "5", "--after", first.next);
  expect(second.records).toMatchObject([{ action: "key.create" }]);
  expect((await runHere(["audit", "--account", accountId])).stdout).toMatch(/label none -> web/);
  expect(await refusal("audit", "--after", "x")).toContain("cursor");
});
