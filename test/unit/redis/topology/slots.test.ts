import { expect, test } from "vitest";
import { slotOf } from "../../../../src/redis/topology/cluster-slots.ts";

test.each([
  ["123456789", 0x31c3],
  ["{p00}:ledger", slotOf("p00")],
  ["tg:meta", 12_395],
  ["tg:survey", 15_406],
])("%s is in slot %i", (name, slot) => {
  expect(slotOf(name)).toBe(slot);
});
