import { expect, test } from "vitest";
import { pollRefusal } from "../../../src/gateway/upstream-refusals.ts";

// Guarantee: no client gives up a task that is charged because our own credential was refused for a while.
test("a poll for which the upstream refuses the gateway says when to poll again, and does not forbid it", () => {
  const refusal = pollRefusal({ outcome: "refused_gateway", detail: "HTTP 401" });
  expect(refusal).toMatchObject({ name: "upstream_refused_gateway", retryAfterSeconds: 5 });
  expect(refusal.shouldRetry).toBeUndefined();
});
