import { expect, test } from "vitest";
import { addEntry, emptyFold, type Report, resumeAt } from "../../../src/ledger/fold.ts";
import { checkpointOf } from "../../../src/records/checkpoints.ts";
import { ledgerEntry } from "../../../src/records/ledger-entries.ts";

const GRANT = {
  ...{ account_id: "acc", type: "recharge", amount: "10", balance_after: "10", endpoint: "", reason: "" },
  ...{ task_id: "", at: "1", previous: "", reference: "order 1" },
};

// Guarantee: entries that leave the ledger while it is verified are compared with what is kept of them.
test.each([
  ["the same", "", 0, []],
  ["another sum of grants", "recharged 9", 0, ["chain"]],
  ["another sum of grants, in a later reading of a large ledger", "recharged 9", 1, []],
])("entries that were read and have left since, of which the checkpoint says %s", (_, other, part, found) => {
  const names: string[] = [];
  const report: Report = (invariant) => void names.push(invariant);
  const fold = emptyFold(part, 2);
  addEntry(fold, ledgerEntry(0, ["5-0", Object.entries(GRANT).flat()]), report);
  const text = `entry 5-0 entries 1 balance 10 recharged 10 references 1 referenced 10 ${other}`.trim();
  resumeAt(fold, "acc", checkpointOf(text)!, report);
  expect(names).toEqual(found);
});
