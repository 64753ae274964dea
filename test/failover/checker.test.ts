import { expect, test } from "vitest";
import { requestText } from "../../src/records/records.ts";
import type { ClientEvent, LinkEvent, StoreEntry, UpstreamEvent } from "../fault/history.ts";
import { checkEnd, checkRound, type FailoverHistory } from "./checker.ts";
import type { OperatorEvent } from "./operators.ts";

// Guards of the campaign's checker: each must find what it is there for, and nothing in a history where all is well.

interface Facts {
  operators?: OperatorEvent[];
  client?: ClientEvent[];
  /** Fields of ledger entries. */
  entries?: Record<string, string>[];
  upstream?: UpstreamEvent[];
  link?: LinkEvent[];
  rounds?: FailoverHistory["rounds"];
}

function historyOf({ entries = [], ...facts }: Facts): FailoverHistory {
  const ledger = entries.map((fields, at) => [`${at + 1}-0`, Object.entries(fields).flat()]);
  const requests = entries
    .filter(({ type }) => type === "consume")
    .map(({ request_id, account_id, task_id }) => ({
      name: `tg:{p00}:request:${request_id}`,
      value: requestText({
        state: "bound",
        price: "10",
        account_id: account_id ?? "",
        task_id: task_id ?? "",
      }),
    }));
  const store: StoreEntry[] = [{ name: "tg:{p00}:ledger", value: ledger }, ...requests];
  const meta = { accounts: [], verified: [], toleranceMs: 50, maxAgesMs: {}, quiet: true, quiescenceMs: 0 };
  const none = { upstream: [], link: [], faults: [], forgotten: [], otherStore: [] };
  const seen = { operators: [], client: [], rounds: [], failovers: 0, ...none, ...facts };
  return { ...seen, meta: meta as unknown as FailoverHistory["meta"], store };
}

const violationsOf = (facts: Facts): string[] =>
  checkRound(historyOf(facts)).criteria.flatMap(({ violations }) => violations);

const endOf = (facts: Facts, name: RegExp): string[] =>
  checkEnd(historyOf(facts)).criteria.find((one) => name.test(one.name))!.violations;

const operatorEvent = (about: Partial<OperatorEvent>): OperatorEvent => ({
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

const grant = operatorEvent({ reference: "order 1" });
const granted = { type: "recharge", account_id: "acc", amount: "100", reference: "order 1" };
const charge = { type: "consume", account_id: "acc", amount: "-10", task_id: "task", request_id: "req" };
const answer = used({ status: 200, requestId: "req", taskId: "task" });
const create = operatorEvent({ kind: "create", keyId: "key" });
const revoke = operatorEvent({ kind: "revoke", keyId: "key" });
const served = used({ status: 200, keyId: "key", requestId: "req", taskId: "task" });
const refused = used({ status: 401, keyId: "key", requestId: "other" });

const admit: LinkEvent = {
  gateway: "",
  script: "admit",
  requestId: "req",
  atMs: 30,
  forwardedMs: 30,
  outcome: "admitted",
  delivered: true,
};
const seenUpstream = {
  requestId: "req",
  atMs: 35,
  truth: "no",
  arrivals: 1,
  kind: "refuses_400",
} as UpstreamEvent;
const round = { fault: "lag, kill", lostAllGateways: false, strikeMs: 0, servedMs: [900, 9000] };

test("a history where all that was said is true has no violations", () => {
  expect(violationsOf({ operators: [grant], entries: [granted] })).toEqual([]);
  expect(violationsOf({ client: [answer], entries: [charge] })).toEqual([]);
  expect(violationsOf({ operators: [create], client: [served], entries: [charge] })).toEqual([]);
  expect(violationsOf({ operators: [revoke], client: [refused] })).toEqual([]);
});

test("a command that nobody was told the end of may have been done or not", () => {
  const unknown = operatorEvent({ reference: "order 1", acknowledged: false });
  expect(violationsOf({ operators: [unknown] })).toEqual([]);
  expect(violationsOf({ operators: [unknown], entries: [granted] })).toEqual([]);
});

test("what a failover may have forgotten is no violation", () => {
  const rounds = [{ ...round, forgets: [20, 40] as const }];
  expect(violationsOf({ upstream: [seenUpstream], link: [admit], rounds })).toEqual([]);
});

test("an ADMIT that has done nothing may be sent again", () => {
  const moved = { ...admit, outcome: "-MOVED" };
  const rounds = [{ ...round, forgets: [20, 40] as const }];
  expect(violationsOf({ link: [moved, admit], rounds })).toEqual([]);
});

test("a task whose gateway was killed before its charge was made is explained, and after it is found", () => {
  const made = { ...seenUpstream, gateway: "g0", kind: "ok", truth: "yes", taskId: "task", answeredMs: 60 };
  const kill = { kind: "kill", atMs: 70, gateway: "g0", phase: "" };
  const uncharged = (outcome: string): string[] => {
    const link = [admit, { ...admit, script: "bind", atMs: 80, outcome }];
    const history = historyOf({ upstream: [made as UpstreamEvent], link });
    const { criteria } = checkEnd({ ...history, faults: [kill] as FailoverHistory["faults"] });
    return criteria.find(({ name }) => name === "the upstream's own log agrees")!.violations;
  };
  expect(uncharged("-MOVED").filter((text) => text.includes("not charged"))).toEqual([]);
  expect(uncharged("bound").filter((text) => text.includes("not charged"))).toHaveLength(1);
});

test("a partition that is served again too late, or never, is found", () => {
  expect(endOf({ rounds: [round] }, /served again/)).toEqual([]);
  expect(endOf({ rounds: [{ ...round, servedMs: [900, 10_001] }] }, /served again/)).toHaveLength(1);
  expect(endOf({ rounds: [{ ...round, servedMs: [] }] }, /served again/)).toHaveLength(1);
});

test("a slot that never came back is found", () => {
  const customer = { accountId: "acc", keyId: "key" };
  const history = historyOf({});
  const store = [{ name: "tg:{p00}:slots:key", value: ["req"] }];
  const meta = { ...history.meta, accounts: [customer] } as FailoverHistory["meta"];
  const { criteria } = checkEnd({ ...history, store, meta });
  const slots = criteria.find(({ name }) => name === "no slot leaks, every task ends")!;
  expect(slots.violations.join()).toMatch(/1 slots leaked/);
});

test("a refusal beside an admission that a failover has forgotten is right, and without one is found", () => {
  const customer = { accountId: "acc", keyId: "key", max_concurrent: 1, rate_limit: 9, daily_limit: 9 };
  const limited = used({ keyId: "key", code: 2002, status: 429 });
  const falseRefusals = (link: LinkEvent[]): string[] => {
    const history = historyOf({ client: [limited], link });
    const meta = { ...history.meta, accounts: [customer] } as FailoverHistory["meta"];
    return checkEnd({ ...history, meta }).criteria.find(({ name }) => name === "no false refusal")!
      .violations;
  };
  expect(falseRefusals([{ ...admit, outcome: "admitted", keyId: "key" }])).toEqual([]);
  expect(falseRefusals([{ ...admit, outcome: "admitted", keyId: "another" }])).toHaveLength(1);
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
  ["an ADMIT that is sent twice", /ADMIT of req was sent 2 times/, { link: [admit, admit] }],
  [
    "an admission that is forgotten without a failover",
    /forgotten, though no failover was near/,
    { upstream: [seenUpstream], rounds: [{ ...round, forgets: [100, 200] }] },
  ],
])("%s is found", ([, violation, facts]) => {
  expect(violationsOf(facts).join("\n")).toMatch(violation);
});
