import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { openSecretBox } from "../../src/webhooks/sealed-secrets.ts";
import { json as jsonOf, runHere } from "../support/cli.ts";
import { randomId } from "../support/store.ts";
import { WEBHOOK_SECRET_KEY } from "../support/webhook-stage.ts";

let folder: string;
let env: Record<string, string>;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "tollgate-cli-webhooks-"));
  const file = join(folder, "tollgate.yaml");
  await writeFile(file, "webhooks:\n  allow_networks: [127.0.0.0/8]\n");
  env = { TOLLGATE_CONFIG: file, WEBHOOK_SECRET_KEY };
});
afterAll(() => rm(folder, { recursive: true }));

// biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape.
async function webhooks(...words: string[]): Promise<any> {
  const { stdout, stderr, code } = await runHere(["webhooks", ...words, "--json"], env);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  return JSON.parse(stdout);
}
const refused = async (words: string[], given = env): Promise<string> => {
  const { code, stderr } = await runHere(["webhooks", ...words], given);
  expect(code).toBe(1);
  return stderr;
};

test("an endpoint is registered, shown, changed, tested, rotated, sealed anew and deleted", async () => {
  const account = randomId("acc");
  await jsonOf("accounts", "create", account);
  const url = "https://shop.example.com/hook";
  const made = await webhooks(
    "create",
    account,
    url,
    "--events",
    "task.completed,task.failed",
    "--label",
    "shop",
  );
  expect(made).toMatchObject({
    account_id: account,
    url,
    status: "enabled",
    secret: expect.stringMatching(/^whsec_/),
  });
  const { id } = made;
  expect((await webhooks("list", account)).webhooks).toMatchObject([{ id, label: "shop" }]);
  expect(await webhooks("show", account, id)).not.toHaveProperty("secret");
  const sent = await webhooks("test", account, id);
  expect((await webhooks("deliveries", account, id)).deliveries).toMatchObject([
    { id: sent.id, status: "waiting" },
  ]);
  expect((await webhooks("deliveries", account, id, "--status", "failed")).deliveries).toEqual([]);
  expect(await webhooks("redeliver", account, id, sent.id)).toMatchObject({ type: "webhook.test" });
  expect(await webhooks("set", account, id, "--status", "disabled")).toMatchObject({
    disabled_reason: "operator",
  });
  expect(await refused(["test", account, id])).toContain("enable it first");
  const rotated = (await webhooks("rotate-secret", account, id)).secret;
  expect(rotated).not.toBe(made.secret);
  const latest = (await webhooks("rotate-secret", account, id)).secret;
  const next = {
    ...env,
    WEBHOOK_SECRET_KEY: `${WEBHOOK_SECRET_KEY}-2`,
    WEBHOOK_SECRET_KEY_PREVIOUS: WEBHOOK_SECRET_KEY,
  };
  const { stdout } = await runHere(["webhooks", "reseal", "--json"], next);
  expect(JSON.parse(stdout).resealed).toBeGreaterThanOrEqual(1);
  expect(JSON.parse((await runHere(["webhooks", "reseal", "--json"], next)).stdout).resealed).toBe(0);
  const redis = new Redis(inject("redisUrl"));
  const [name = ""] = await redis.keys(`tg:{*}:webhook:${id}`);
  const { secret = "", previous_secret: earlier = "" } = await redis.hgetall(name);
  redis.disconnect();
  const box = openSecretBox({ secretKey: next.WEBHOOK_SECRET_KEY, previousSecretKey: undefined });
  expect([secret, ...earlier.split(" ")].map((sealed) => box?.unseal(sealed))).toEqual([
    ...[latest, rotated, made.secret],
  ]);
  expect(await webhooks("delete", account, id)).toMatchObject({ id, deleted: true });
  expect((await webhooks("list", account)).webhooks).toEqual([]);
  expect(
    (await jsonOf("audit", "--account", account)).records.map(({ action }: { action: string }) => action),
  ).toEqual([
    "webhook.delete",
    "webhook.reseal",
    "webhook.rotate_secret",
    "webhook.rotate_secret",
    "webhook.patch",
    "webhook.redeliver",
    "webhook.test",
    "webhook.create",
    "account.create",
  ]);
});

test("an account has ten endpoints at most", async () => {
  const account = randomId("acc");
  await jsonOf("accounts", "create", account);
  for (let nth = 0; nth < 10; nth++) await webhooks("create", account, `https://example.com/${nth}`);
  expect(await refused(["create", account, "https://example.com/11"])).toContain("has 10 endpoints");
  expect((await webhooks("list", account)).webhooks).toHaveLength(10);
});

test("with a lost key, an endpoint is resealed again once its secret was rotated", async () => {
  const account = randomId("acc");
  await jsonOf("accounts", "create", account);
  const { id } = await webhooks("create", account, "https://example.com/lost");
  const next = { ...env, WEBHOOK_SECRET_KEY: `${WEBHOOK_SECRET_KEY}-lost` };
  const reseal = async (keys: Record<string, string>) =>
    JSON.parse((await runHere(["webhooks", "reseal", "--json"], keys)).stdout);
  expect((await reseal(next)).failed).toContainEqual({ id, account_id: account });
  const { code, stdout } = await runHere(["webhooks", "reseal"], next);
  expect(code).toBe(1);
  expect(stdout).toContain(`tollgate webhooks rotate-secret ${account} ${id}\n`);
  await runHere(["webhooks", "rotate-secret", account, id], next);
  expect((await reseal(next)).failed).not.toContainEqual({ id, account_id: account });
  const third = {
    WEBHOOK_SECRET_KEY: `${WEBHOOK_SECRET_KEY}-3`,
    WEBHOOK_SECRET_KEY_PREVIOUS: next.WEBHOOK_SECRET_KEY,
  };
  expect(await reseal({ ...env, ...third })).toMatchObject({ resealed: 1 });
  expect(await reseal({ ...env, ...third })).toMatchObject({ resealed: 0 });
});

test("an endpoint of a closed account can be listed and deleted, and nothing else", async () => {
  const account = randomId("acc");
  await jsonOf("accounts", "create", account);
  const { id } = await webhooks("create", account, "https://example.com/closed");
  await jsonOf("accounts", "set", account, "--status", "closed");
  for (const words of [
    ["set", account, id, "--label", "new"],
    ["rotate-secret", account, id],
    ["test", account, id],
  ])
    expect(await refused(words)).toContain(`account ${account} is closed`);
  expect((await webhooks("list", account)).webhooks).toMatchObject([{ id }]);
  expect((await webhooks("deliveries", account, "callback")).deliveries).toEqual([]);
  expect(await webhooks("delete", account, id)).toMatchObject({ id, deleted: true });
});

test("without the key, for an inner address and for an unknown event the command says what is wrong", async () => {
  const account = randomId("acc");
  await jsonOf("accounts", "create", account);
  const url = "https://10.0.0.1/";
  expect(await refused(["create", account, url])).toContain("public address");
  expect(await refused(["create", account, "https://example.com", "--events", "task.begun"])).toContain(
    "task.begun",
  );
  const { WEBHOOK_SECRET_KEY: _, ...without } = env;
  expect(await refused(["list", account], without)).toContain("set WEBHOOK_SECRET_KEY");
});
