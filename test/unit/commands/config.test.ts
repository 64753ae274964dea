import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { defaultConfig } from "../../../src/config/config.ts";
import { type Ran, runCommand } from "../../support/run-command.ts";
import { givenFiles } from "../config/support.ts";

const { settings, config } = defaultConfig();
const gold = { rate_limit: 7, max_concurrent: 10, daily_limit: 1000 };

/** The keys by tier in the gateway's `/config`. */
let counts: object = {};
const admin = createServer((_request, response) => {
  const running = { ...settings, tiers: { ...settings.tiers, gold } };
  response.end(
    JSON.stringify({
      settings: running,
      prices: config.priceLists[0]!.table,
      from_environment: {},
      ...counts,
    }),
  );
});
beforeAll(() => once(admin.listen(0, "127.0.0.1"), "listening"));
afterAll(() => admin.close());

/** Runs `tollgate config diff` on a file that has the defaults, and so drops the tier gold. */
function diff(...flags: string[]): Promise<Ran> {
  const url = `http://127.0.0.1:${(admin.address() as AddressInfo).port}`;
  const args = ["config", "diff", givenFiles({ "planned.yaml": "{}" }), "--admin", url, ...flags];
  return runCommand(args, {});
}

test.each([
  ["servre: {}", "1 problem in"],
  ["servre: {}\nstroe: {}", "2 problems in"],
])("config check counts the problems of %j", async (content, words) => {
  const { stdout } = await runCommand(["config", "check", givenFiles({ "broken.yaml": content })], {});
  expect(stdout).toMatch(new RegExp(`^${words} `, "m"));
});

const PRINTED = `
upstream:
  url: https://chosen.example/secret-path
  headers: { x-tenant: secret-header }
log:
  level: warn
tasks: { retention: 3d }
`;

// Guarantee: an operator sees what is in force and why, and no secret.
test("config print says what is in force, where each value is from, and which secrets are set", async () => {
  const env = {
    LOG_LEVEL: "debug",
    REDIS_URL: "redis://:secret-pass@r.example:6379",
    ADMIN_TOKEN: "secret-token-0123",
  };
  const file = givenFiles({ "own.yaml": PRINTED });
  const { stdout, code } = await runCommand(["config", "print", file, "--json"], env);
  const { settings, ...rest } = JSON.parse(stdout);
  const of = (name: string) => settings.find(({ setting }: { setting: string }) => setting === name);
  expect(code).toBe(0);
  expect(of("log.level")).toEqual({
    setting: "log.level",
    value: "debug",
    from: "environment",
    variable: "LOG_LEVEL",
  });
  expect(of("tasks.retention")).toMatchObject({ value: "3d", from: "file", line: 7 });
  expect(of("tasks.max_age")).toMatchObject({ value: "2h", from: "default" });
  expect(of("store.redis_url")).toMatchObject({ from: "environment", variable: "REDIS_URL" });
  expect(of("upstream.headers.x-tenant")).toMatchObject({ value: "***", from: "file", line: 4 });
  expect(rest.secrets).toMatchObject({ ADMIN_TOKEN: "set", ARCHIVE_URL: "unset" });
  expect(rest.hidden).toEqual({ "log.level": "LOG_LEVEL" });
  const words = (await runCommand(["config", "print", file], env)).stdout;
  expect(words).toContain("log.level of the file is not in force: the variable LOG_LEVEL replaces it.");
  expect(words).toMatch(/^tasks\.retention +"3d" +\S*own\.yaml:7$/m);
  for (const shown of [stdout, words]) expect(shown).not.toMatch(/secret-(path|header|pass|token)/);
});

test("defaults that the shipped file lists are hidden by no variable", async () => {
  const env = { LOG_LEVEL: "debug", PORT: "1", ADMIN_HOSTS: "gateway" };
  const { stdout } = await runCommand(["config", "print", "--json"], env);
  expect(JSON.parse(stdout).hidden).toEqual({});
});

// Guarantee: silence about tiers means that they were compared.
test.each([
  [{ keys_by_tier: null }, "is not known: the gateway has no counts of keys by tier yet"],
  [
    { keys_by_tier: { standard: 3 }, unread_partitions: 2 },
    "is not fully known: 2 partitions cannot be read",
  ],
])("config diff says what the gateway does not know of keys by tier: %j", async (known, words) => {
  counts = known;
  const text = await diff();
  const json = await diff("--json");
  expect(text.stdout).toContain(`Not checked: whether keys use other tiers ${words}.`);
  expect(JSON.parse(json.stdout)).toMatchObject({ not_checked: expect.stringContaining(words), refused: [] });
  expect([text.code, json.code]).toEqual([0, 0]);
});

// Guarantee: a script that asks before it copies a file does not copy one that the gateway refuses.
test("config diff exits with 1 for a file that the running gateway would refuse", async () => {
  counts = { keys_by_tier: { gold: 12 }, unread_partitions: 0 };
  const text = await diff();
  const json = await diff("--json");
  expect([text.code, json.code]).toEqual([1, 1]);
  expect(text.stdout).toMatch(
    /The running gateway would refuse this file:\n.*tiers\.gold: 12 keys use tier gold/,
  );
  const { refused, not_checked } = JSON.parse(json.stdout);
  expect(refused).toEqual([expect.stringContaining("12 keys use tier gold, which is missing")]);
  expect(not_checked).toBeUndefined();
});

test("config diff does not call a tier refused that the running gateway does not name either", async () => {
  counts = { keys_by_tier: { silver: 1 }, unread_partitions: 0 };
  const { code, stdout } = await diff();
  expect(code).toBe(0);
  expect(stdout).toContain("1 key uses tier silver, which is missing");
  expect(stdout).not.toContain("would refuse");
});

// The gateway has its secrets in an environment of its own.
test("config diff takes a file that needs a secret", async () => {
  const file = givenFiles({ "relay.yaml": "webhooks: { public_url: https://api.example.com }" });
  const { code, stdout } = await runCommand(["config", "diff", file, "--defaults"], {});
  expect(code, stdout).toBe(0);
  expect(stdout).toContain("webhooks.public_url");
});
