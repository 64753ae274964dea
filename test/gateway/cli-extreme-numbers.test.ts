import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { runHere } from "../support/cli.ts";
import { givenManageStage, type ManageStage } from "./manage-stage.ts";

// Guarantee: a number on the command line is taken as what it is, or refused in words; nothing else changes.

let stage: ManageStage;
beforeAll(async () => {
  stage = await givenManageStage();
});
afterAll(() => stage.stop());

/** Arguments as somebody may type them, and the whole number that they are. */
const ARGUMENTS: readonly (readonly [text: string, whole: number | undefined])[] = [
  ["10", 10],
  ["010", 10],
  ["0", 0],
  ["1000000000000", 1e12],
  ["1000000000001", 1e12 + 1],
  [String(2 ** 53 - 1), 2 ** 53 - 1],
  ["-0", undefined],
  ["10.0", undefined],
  ["1e1", undefined],
  ["0.1", undefined],
  ["1e308", undefined],
  ["-1e308", undefined],
  ["NaN", undefined],
  ["Infinity", undefined],
  ["true", undefined],
  ["null", undefined],
  ["[]", undefined],
  ["", undefined],
  [" 10", undefined],
  ["0x10", undefined],
  ["10n", undefined],
  ["1_000", undefined],
  ["9007199254740992", undefined],
  ["9007199254740993", undefined],
  ["9223372036854775808", undefined],
  ["18446744073709551616", undefined],
  ["1".repeat(400), undefined],
];

interface Command {
  name: string;
  least: number;
  most: number;
  args(text: string, accountId: string, keyId: string): string[];
  /** The store's content afterwards. */
  shown(account: Shown, key: Shown): unknown;
}
// biome-ignore lint/suspicious/noExplicitAny: answers of the management API.
type Shown = any;

const keysSet = (option: string, most: number, shown: (key: Shown) => unknown, least = 1): Command => ({
  name: `keys set ${option}`,
  least,
  most,
  args: (text, _, keyId) => ["keys", "set", keyId, option, text],
  shown: (_, key) => shown(key),
});
const accountsSet = (option: string, most: number, shown: (account: Shown) => unknown): Command => ({
  name: `accounts set ${option}`,
  least: 1,
  most,
  args: (text, accountId) => ["accounts", "set", accountId, option, text],
  shown: (account) => shown(account),
});
const COMMANDS: Command[] = [
  {
    name: "credits grant",
    least: 1,
    most: 1e12,
    args: (text, accountId) => ["credits", "grant", accountId, text, "--reference", "r"],
    shown: ({ balance }) => balance,
  },
  {
    name: "credits adjust",
    least: 1,
    most: 1e12,
    args: (text, accountId) => ["credits", "adjust", accountId, text, "--reference", "r", "--reason", "test"],
    shown: ({ balance }) => balance,
  },
  {
    name: "keys create --credits",
    least: 1,
    most: 1e12,
    args: (text, accountId) => ["keys", "create", "--account", accountId, "--credits", text],
    shown: ({ balance }) => balance,
  },
  keysSet("--monthly-credits", 1e12, (key) => key.monthly_credits, 0),
  keysSet("--rate-limit", 100_000, (key) => key.limits.rate_limit),
  keysSet("--max-concurrent", 10_000, (key) => key.limits.max_concurrent),
  keysSet("--daily-limit", 1e9, (key) => key.limits.daily_limit),
  accountsSet("--rate-limit", 100_000, (account) => account.limits.rate_limit),
  accountsSet("--daily-limit", 1e9, (account) => account.limits.daily_limit),
];

describe.each(COMMANDS)("$name", ({ least, most, args, shown }) => {
  test.each(ARGUMENTS)("%j", async (text, whole) => {
    const accountId = await stage.givenAccount();
    const { key_id } = await stage.givenKey(accountId);
    const read = async () =>
      shown(
        (await stage.manage("GET", `/accounts/${accountId}`)).body,
        (await stage.manage("GET", `/accounts/${accountId}/keys/${key_id}`)).body,
      );
    const before = await read();
    const ran = await runHere([...args(text, accountId, key_id), "--json"]);
    if (whole !== undefined && whole >= least && whole <= most) {
      expect(ran).toMatchObject({ code: 0, stderr: "" });
      expect(ran.stdout).not.toMatch(/[: ](NaN|Infinity|-0\b|\d+(\.\d+)?e\+)/);
      expect(await read()).toBe(whole);
    } else {
      expect(ran).toMatchObject({ code: 1, stdout: "" });
      expect(ran.stderr).toMatch(/whole number|unknown option|missing required|say how many/);
      expect(ran.stderr).not.toMatch(/\n\s+at /);
      expect(await read()).toEqual(before);
    }
  });
});
