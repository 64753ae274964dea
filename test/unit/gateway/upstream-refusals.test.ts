import { expect, test } from "vitest";
import { pollRefusal } from "../../../src/gateway/upstream-refusals.ts";

// Guarantee: no client gives up a task that is charged because our own credential was refused for a while.
test("a poll for which the upstream refuses the gateway says when to poll again, and does not forbid it", () => {
  const refusal = pollRefusal({ outcome: "refused_gateway", detail: "HTTP 401" });
  expect(refusal).toMatchObject({ name: "upstream_refused_gateway", retryAfterSeconds: 5 });
  expect(refusal.shouldRetry).toBeUndefined();
});

// Guarantee: no client gives up a task that is charged because the upstream was busy for a while, or a proxy before it refused the poll.
test("a poll that was refused, but not for the task, is made again; one that was refused for the task is not", () => {
  const refused = { outcome: "refused", status: 408, code: 408, text: "Busy", detail: "HTTP 408" } as const;
  const transient = pollRefusal({ ...refused, aboutTask: false });
  expect(transient).toMatchObject({ name: "upstream_failed", status: 502, code: 502, retryAfterSeconds: 5 });
  expect(transient.shouldRetry).toBeUndefined();
  expect(pollRefusal({ ...refused, aboutTask: true })).toMatchObject({
    code: 408,
    text: "Busy",
    shouldRetry: false,
  });
});

// Guarantee: no client gives up a task that is charged because a replica of the upstream lags.
test("a poll of a task that the upstream does not know says when to poll again, until the task has ended", () => {
  expect(pollRefusal({ outcome: "gone" })).toMatchObject({ name: "upstream_failed", retryAfterSeconds: 5 });
});
