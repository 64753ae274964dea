import { expect, test } from "vitest";
import { requestText } from "../../src/records/records.ts";
import type { Criterion } from "../fault/checker.ts";
import type { Look, ReceivedMessage, WebhookFacts } from "../fault/history.ts";
import { checkEnd, type FailoverHistory } from "./checker.ts";
import { TOGETHER } from "./criteria-together.ts";

// Guards of the campaign of webhooks: what it judges in addition must be found, and excused where a failover explains it.

const END_MS = 100_000;
const round = { fault: "kill", lostAllGateways: false, strikeMs: END_MS, servedMs: [900] };
const bodyOf = (atMs: number): string =>
  `{"type":"task.completed","timestamp":"${new Date(atMs).toISOString()}","data":{"task_id":"task"}}`;
const booked: Look = {
  state: "finished",
  status: "completed",
  holdsSlot: false,
  refunded: false,
  polled: "",
};

const message = (about: Partial<ReceivedMessage> = {}): ReceivedMessage => ({
  ...{ accountId: "acc", endpointId: "we", webhookId: "evt_req_task_completed", type: "task.completed" },
  ...{ taskId: "task", body: bodyOf(END_MS), signedWell: true, status: 200, answer: "200" },
  ...{ arrivedMs: END_MS + 100, endedMs: END_MS + 110, look: booked },
  ...about,
});

function historyOf(facts: Partial<WebhookFacts>, about: Partial<FailoverHistory> = {}): FailoverHistory {
  const value = requestText({
    ...{ state: "finished", status: "completed", price: "10", account_id: "acc", task_id: "task" },
    finished_at: String(END_MS),
  });
  const webhooks: WebhookFacts = {
    endpoints: [{ accountId: "acc", endpointId: "we", manner: "answers", enabledMs: [[0, 2 * END_MS]] }],
    ...{ messages: [message()], strays: [], stored: [], leases: [], settlings: [], byHand: [] },
    ...{ answerMs: 1000, leaseMs: 5500, perEndpoint: 4, tries: 8, waiting: 0 },
    ...facts,
  };
  const meta = { accounts: [], verified: [], toleranceMs: 50, maxAgesMs: {}, quiet: true, quiescenceMs: 0 };
  const none = { client: [], upstream: [], link: [], faults: [], forgotten: [], otherStore: [] };
  return {
    ...{ ...none, operators: [], rounds: [round], failovers: 0, webhooks },
    store: [{ name: "tg:{p00}:request:req", value }],
    meta: meta as unknown as FailoverHistory["meta"],
    ...about,
  };
}

const judged = (history: FailoverHistory, name: RegExp): Criterion =>
  checkEnd(history, TOGETHER).criteria.find((one) => name.test(one.name))!;
const violationsOf = (history: FailoverHistory, name: RegExp): string[] => judged(history, name).violations;
const kills = (count: number, atMs: number) =>
  Array.from({ length: count }, () => ({ kind: "kill", atMs, gateway: "g0", phase: "" }));

test("a run with too few ends, kills or failovers is unmet", () => {
  expect(violationsOf(historyOf({}), /ends of tasks/)).toEqual(["1, which is less than 3000"]);
  expect(violationsOf(historyOf({}, { failovers: 9 }), /failovers$/)).toEqual(["9, which is less than 10"]);
  expect(violationsOf(historyOf({}, { failovers: 10 }), /failovers$/)).toEqual([]);
  expect(violationsOf(historyOf({}, { faults: kills(49, END_MS) }), /gateways killed/)).toHaveLength(1);
  expect(violationsOf(historyOf({}, { faults: kills(50, END_MS) }), /gateways killed/)).toEqual([]);
});

test("kills beside the failovers alone are no kills meanwhile", () => {
  const history = historyOf({}, { faults: kills(50, END_MS + 901) });
  expect(violationsOf(history, /gateways killed/)).toEqual(["0 during a failover"]);
});

test("a manner of answering that never came is found", () => {
  const messages = Array.from({ length: 10 }, () => message());
  const rare = violationsOf(historyOf({ messages }), /answered in all ways/).join();
  expect(rare).toMatch(/0 × 410/);
  expect(rare).not.toMatch(/× 200/);
});

test("a connection to an inner address is found, and one to where a redirect leads", () => {
  const strays: WebhookFacts["strays"] = [
    { to: "inner", atMs: 1 },
    { to: "redirect", atMs: 2 },
  ];
  expect(violationsOf(historyOf({ strays }), /no inner address/)).toHaveLength(2);
  expect(violationsOf(historyOf({}), /no inner address/)).toEqual([]);
});

test("what is told before it is booked is found, unless a failover may have lost the end", () => {
  const messages = [message({ look: { ...booked, state: "bound", status: "" } })];
  const lost = { ...round, forgets: [END_MS - 10, END_MS + 10] as const };
  const kept = { ...round, forgets: [END_MS + 10, END_MS + 300] as const };
  expect(violationsOf(historyOf({ messages }), /before it is told/)).toHaveLength(1);
  expect(violationsOf(historyOf({ messages }, { rounds: [kept] }), /before it is told/)).toHaveLength(1);
  expect(violationsOf(historyOf({ messages }, { rounds: [lost] }), /before it is told/)).toEqual([]);
});

test("a fifth message at a time is found, unless a failover may have lost a lease", () => {
  const messages = Array.from({ length: 5 }, (_, at) =>
    message({ webhookId: `evt_${at}_task_completed`, endedMs: END_MS + 1000 }),
  );
  const lost = { ...round, forgets: [END_MS - 2500, END_MS - 1000] as const };
  expect(violationsOf(historyOf({ messages }), /their pace/)).toHaveLength(1);
  expect(violationsOf(historyOf({ messages: messages.slice(1) }), /their pace/)).toEqual([]);
  expect(violationsOf(historyOf({ messages }, { rounds: [lost] }), /their pace/)).toEqual([]);
});

test("an end that is neither told nor listed as failed after its schedule is found", () => {
  const stored = [{ endpointId: "we", webhookId: "evt_req_task_completed", status: "failed", tries: 8 }];
  const early = [{ ...stored[0]!, tries: 7 }];
  expect(violationsOf(historyOf({}), /each end is told/)).toEqual([]);
  expect(violationsOf(historyOf({ messages: [] }), /each end is told/)).toHaveLength(1);
  expect(violationsOf(historyOf({ messages: [], stored }), /each end is told/)).toEqual([]);
  expect(violationsOf(historyOf({ messages: [], stored: early }), /each end is told/)).toHaveLength(1);
});
