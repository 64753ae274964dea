import type { Redis } from "ioredis";
import { expect, test, vi } from "vitest";
import { claimName, claimText, requestName } from "../../../src/records/names.ts";
import { type RequestRecord, requestText } from "../../../src/records/records.ts";
import { CallbackTasks, type CallbackTasksOptions } from "../../../src/settlement/callback-tasks.ts";
import { createLogger } from "../../../src/telemetry/log.ts";
import { createMetrics } from "../../../src/telemetry/metrics.ts";
import type { PollOutcome } from "../../../src/upstream/poll-request.ts";

const REQUEST = { requestId: "req", partition: 5 };
const HELD = {
  state: "held",
  account_id: "acc",
  key_id: "key",
  price: "10",
  admitted_at: "1",
  retention_ms: "70000",
};
const COMPLETED: PollOutcome = { outcome: "task", status: "completed", data: "{}" };

/** A request of unknown outcome, and what the upstream answers about each task. */
function givenRequest(
  answers: Record<string, PollOutcome>,
  claims: Record<string, string> = {},
  record: RequestRecord = HELD,
) {
  const values = { ...claims, [requestName(REQUEST.partition, REQUEST.requestId)]: requestText(record) };
  const redis = { get: async (name: string) => values[name] ?? null } as unknown as Redis;
  const primary = {
    nowMs: () => 2,
    command: <T>(work: (redis: Redis) => Promise<T>): Promise<T> => work(redis),
  };
  const store = {
    bind: vi.fn<() => Promise<string | undefined>>(async () => "bound"),
    observe: vi.fn(async () => ({ outcome: "finished" })),
  };
  const upstream = { tagOf: () => "tag", poll: async (taskId: string) => answers[taskId] };
  const tasks = { refundFailed: true, maxAgeMs: 60_000, pollIntervalMs: 1000, retentionMs: 60_000 };
  const options = {
    connection: { of: () => primary, ofName: () => primary, known: { facts: { id: "store" } } },
    store,
    upstream: () => upstream,
    upstreamOf: (tag: string) => ({ poll: async (taskId: string) => answers[`${tag} ${taskId}`] }),
    settings: () => ({ tiers: {}, tasks }),
    metrics: createMetrics(),
    log: createLogger("silent"),
  } as unknown as CallbackTasksOptions;
  const callbacks = new CallbackTasks(options);
  const callBack = (taskId?: string) => callbacks.settle(REQUEST, async () => taskId);
  return { callBack, ...store };
}

// Guarantee: a callback that names another task, by mistake or on purpose, costs nobody the video of the right one.
test.each<[string, PollOutcome, claims: Record<string, string>]>([
  ["unknown_task", { outcome: "gone" }, {}],
  ["unconfirmed", { outcome: "refused", status: 410, code: 410, text: "", detail: "", aboutTask: true }, {}],
  ["conflict", COMPLETED, { [claimName("wrong")]: claimText("another", 6) }],
])(
  "beside a callback that ends as %s, one that names the right task binds it",
  async (result, answer, claims) => {
    const { callBack, bind, observe } = givenRequest({ wrong: answer, right: COMPLETED }, claims);
    const results = await Promise.all([callBack(), callBack("wrong"), callBack("right")]);
    expect(results).toEqual(["no_task", result, "bound"]);
    expect(bind).toHaveBeenCalledExactlyOnceWith(
      expect.objectContaining({ requestId: "req", price: 10, retentionMs: 70_000 }),
      expect.objectContaining({ taskId: "right", upstream: "tag", maxAgeMs: 60_000, pollMs: 1000 }),
    );
    expect(observe).toHaveBeenCalledOnce();
  },
);

test("a callback after one that failed is settled on its own", async () => {
  const { callBack, bind } = givenRequest({ right: COMPLETED });
  bind.mockRejectedValueOnce(new Error("away"));
  const [failed, settled] = await Promise.allSettled([callBack("right"), callBack("right")]);
  expect(failed).toMatchObject({ status: "rejected" });
  expect(settled).toEqual({ status: "fulfilled", value: "bound" });
});

// Guarantee: nobody pays for a request of which the upstream said that it has made no task.
test.each([
  ["due", "bound"],
  ["released", "bound"],
  ["refused", "void"],
  ["unsent", "void"],
])("a callback about a request that is void as %s: %s", async (reason, result) => {
  const { callBack, bind } = givenRequest({ right: COMPLETED }, {}, { ...HELD, state: "void", reason });
  expect(await callBack("right")).toBe(result);
  expect(bind).toHaveBeenCalledTimes(result === "bound" ? 1 : 0);
});

test("a task that this request has claimed already is no other's", async () => {
  const claims = { [claimName("right")]: claimText(REQUEST.requestId, REQUEST.partition) };
  const { callBack } = givenRequest({ right: COMPLETED }, claims);
  expect(await callBack("right")).toBe("bound");
});

test.each([
  ["bound", "bound", 1],
  ["late", "late", 1],
  ["uncollected", "uncollected", 1],
  ["conflict", "conflict", 0],
  ["forgotten", "forgotten", 0],
  [undefined, "waiting", 0],
])("a callback whose BIND is answered %s ends as %s, with %d observation", async (binding, result, times) => {
  const { callBack, bind, observe } = givenRequest({ right: COMPLETED });
  bind.mockResolvedValueOnce(binding);
  expect(await callBack("right")).toBe(result);
  expect(observe).toHaveBeenCalledTimes(times);
});

// An upstream that has replaced it does not know the task, and says so.
test("a task that is bound is polled where it was made, within the age of its admission", async () => {
  const record = {
    ...HELD,
    state: "bound",
    task_id: "made",
    bound_at: "1",
    upstream: "earlier",
    max_age_ms: "50",
  };
  const { callBack, observe } = givenRequest(
    { made: { outcome: "gone" }, "earlier made": COMPLETED },
    {},
    record,
  );
  expect(await callBack()).toBe("settled");
  expect(observe).toHaveBeenCalledExactlyOnceWith(
    expect.objectContaining({ accountId: "acc" }),
    expect.objectContaining({ status: "completed" }),
    expect.objectContaining({ maxAgeMs: 50 }),
  );
});

// A task that the upstream knows and no customer is charged for is a video for nothing.
test("a task in a state that is not known is bound", async () => {
  const { callBack, bind } = givenRequest({
    right: { outcome: "unknown_status", word: "halted", data: "{}" },
  });
  expect(await callBack("right")).toBe("bound");
  expect(bind).toHaveBeenCalledOnce();
});
