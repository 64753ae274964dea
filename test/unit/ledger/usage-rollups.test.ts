import { expect, test } from "vitest";
import { NO_USAGE, usageCounts } from "../../../src/ledger/usage-rollups.ts";

test.each(["requests", "charged", "refunded", "completed", "failed"] as const)(
  "a day has a row if nothing of it but %s is above zero",
  (name) => {
    const row = { requests: 0, credits: 0, refunds: 0, completed: 0, failed: 0, seconds: 0 };
    const shown = { charged: "credits", refunded: "refunds" }[String(name)] ?? name;
    expect(usageCounts({ ...NO_USAGE, [name]: 3 })).toEqual({ ...row, [shown]: 3 });
    expect(usageCounts(NO_USAGE)).toBeUndefined();
  },
);

test("a day whose refunds of others were taken back has a row, though they add up to nothing", () => {
  expect(usageCounts({ ...NO_USAGE, charged: 30, refunded: -30 })).toMatchObject({ refunds: -30 });
});
