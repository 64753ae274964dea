import { expect, test, vi } from "vitest";
import { keyRef } from "../../../src/records/names.ts";
import type { Primary } from "../../../src/redis/primary.ts";
import type { Generation } from "../../../src/scripts/holds.ts";
import { createHolds } from "../../../src/settlement/holds.ts";
import { createMetrics } from "../../../src/telemetry/metrics.ts";
import { ENDPOINT, newTask } from "../../support/store.ts";

// Guarantee: an answered charge is on replicas of the primary that has it.
test("a charge that another primary has answered, since its partition has moved, is confirmed there", async () => {
  const owner = { nowMs: () => 0 } as Primary;
  let current = owner;
  const former = {
    nowMs: () => 0,
    async run() {
      current = owner;
      return "bound";
    },
  } as unknown as Primary;
  current = former;
  const confirm = vi.fn(async () => undefined);
  const facts = { id: "store", partitions: 64, cluster: false };
  const connection = {
    of: () => current,
    ofName: () => current,
    metrics: createMetrics(),
    known: { facts },
    commandTimeoutMs: 500,
  };
  const settlements = { defer: vi.fn(), charged: vi.fn(), voided: vi.fn(), confirm };
  const generation: Generation = {
    requestId: "req",
    key: keyRef("key", "acc", 5),
    price: 10,
    endpoint: ENDPOINT,
    holdMs: 60_000,
    retentionMs: 60_000,
    storeId: facts.id,
  };
  expect(await createHolds(connection, settlements).bind(generation, newTask("task"))).toBe("bound");
  expect(confirm).toHaveBeenCalledExactlyOnceWith(expect.anything(), owner);
});
