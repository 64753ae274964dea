import { expect, test } from "vitest";
import type { ClientEvent, StoreEntry } from "../fault/history.ts";
import { checkRound, type FailoverHistory } from "./checker.ts";
import type { OperatorEvent } from "./operators.ts";

// Guards of the campaign's checker: each must find what it is there for, and nothing in a history where all is well.

interface Facts {
  operators?: OperatorEvent[];
  client?: ClientEvent[];
  /** Fields of ledger entries. */
  entries?: Record<string, string>[];
}

function violationsOf({ operators = [], client = [], entries = [] }: Facts): string[] {
  const ledger = entries.map((fields, at) => [`${at + 1}-0`, Object.entries(fields).flat()]);
  const requests = entries
    .filter(({ type }) => type === "consume")
    .map(({ request_id, account_id, task_id }) => ({
      name: `tg:{p00}:request:${request_id}`,
      value: { state: "bound", price: "10", account_id, task_id },
    }));
  const store: StoreEntry[] = [{ name: "tg:{p00}:ledger", value: ledger }, ...requests];
  const meta = { accounts: [], verified: [] } as unknown as FailoverHistory["meta"];
  const none = { upstream: [], link: [], faults: [], forgotten: [], otherStore: [] };
  return checkRound({ meta, client, store, operators, ...none }).criteria.flatMap((one) => one.violations);
}

const told = (about: Partial<OperatorEvent>): OperatorEvent => ({
  kind: "grant",
  accountId: "acc",
  keyId: "",
  credits: 100,
  reference: "",
  sentMs: 10,
  endedMs: 20,
  acknowledged: true,
  error: "",
  ...about,
});
const used = (about: Partial<ClientEvent>): ClientEvent =>
  ({
    kind: "generate",
    accountId: "acc",
    sentMs: 30,
    endedMs: 40,
    idempotencyKey: "",
    ...about,
  }) as ClientEvent;

const grant = told({ reference: "order 1" });
const granted = { type: "recharge", account_id: "acc", amount: "100", reference: "order 1" };
const charge = { type: "consume", account_id: "acc", amount: "-10", task_id: "task", request_id: "req" };
const answer = used({ status: 200, requestId: "req", taskId: "task" });
const create = told({ kind: "create", keyId: "key" });
const revoke = told({ kind: "revoke", keyId: "key" });
const served = used({ status: 200, keyId: "key", requestId: "req", taskId: "task" });
const refused = used({ status: 401, keyId: "key", requestId: "other" });

test("a history where all that was said is true has no violations", () => {
  expect(violationsOf({ operators: [grant], entries: [granted] })).toEqual([]);
  expect(violationsOf({ client: [answer], entries: [charge] })).toEqual([]);
  expect(violationsOf({ operators: [create], client: [served], entries: [charge] })).toEqual([]);
  expect(violationsOf({ operators: [revoke], client: [refused] })).toEqual([]);
});

test("a command that nobody was told the end of may have been done or not", () => {
  const unknown = told({ reference: "order 1", acknowledged: false });
  expect(violationsOf({ operators: [unknown] })).toEqual([]);
  expect(violationsOf({ operators: [unknown], entries: [granted] })).toEqual([]);
});

test.for<[name: string, violation: RegExp, facts: Facts]>([
  ["a lost charge", /answered 200 with task and is not charged/, { client: [answer] }],
  ["a second charge", /charged 2 times/, { client: [answer], entries: [charge, charge] }],
  [
    "a charge to another account",
    /task of acc is charged to other/,
    { client: [answer], entries: [{ ...charge, account_id: "other" }] },
  ],
  ["a lost grant", /are lost/, { operators: [grant] }],
  ["a second grant", /granted 2 times/, { operators: [grant], entries: [granted, granted] }],
  ["a grant that nobody made", /granted by nobody/, { entries: [granted] }],
  ["a lost key", /key is lost/, { operators: [create], client: [refused] }],
  [
    "a revoked key that is served",
    /is revoked, and was served/,
    { operators: [revoke], client: [served], entries: [charge] },
  ],
])("%s is found", ([, violation, facts]) => {
  expect(violationsOf(facts).join("\n")).toMatch(violation);
});
