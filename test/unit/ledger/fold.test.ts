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

// Guarantee: credits are taken and given only by entries that may do so.
test.each([
  ["trial", "-5", "recharge", ["balance", "chain"]],
  ["trial", "5", "consume", ["chain"]],
  ["trial", "5", "recharge", []],
  ["reversal", "5", "consume", ["chain"]],
])("a %s of %s with the type %s", (kind, amount, type, found) => {
  const names: string[] = [];
  const entry = { ...GRANT, ...{ kind, amount, type, balance_after: amount, reason: "r", of: "order 0" } };
  addEntry(
    emptyFold(),
    ledgerEntry(0, ["5-0", Object.entries(entry).flat()]),
    (name) => void names.push(name),
  );
  expect(names).toEqual(found);
});

type Step = [type: "consume" | "recharge" | "reclaim", amount: number, requestId: string];

/** Violations of an account of which a charge of 20 and no refund has left the ledger. */
function foundBehindTrimmed(steps: readonly Step[]): string[] {
  const found: string[] = [];
  const report: Report = (invariant, _, message) => void found.push(`${invariant}: ${message}`);
  const fold = emptyFold();
  resumeAt(fold, "acc", checkpointOf("entry 5-0 entries 2 balance 80 recharged 100 consumed 20")!, report);
  let [balance, previous] = [80, "5-0"];
  for (const [at, [type, amount, requestId]] of steps.entries()) {
    balance += amount;
    const streamId = `${6 + at}-0`;
    const entry = { ...GRANT, ...{ type, amount: String(amount), balance_after: String(balance), previous } };
    const ofRequest = { request_id: requestId, endpoint: "/v1/videos", reference: "" };
    addEntry(fold, ledgerEntry(0, [streamId, Object.entries({ ...entry, ...ofRequest }).flat()]), report);
    previous = streamId;
  }
  return found;
}

// Guarantee: that charges have left the ledger does not excuse a mistake about those that are there.
test.each<[string, Step[], RegExp[]]>([
  ["a refund of the charge that left", [["recharge", 20, "gone"]], []],
  [
    "its refund, taken back",
    [
      ["recharge", 20, "gone"],
      ["reclaim", -20, "gone"],
    ],
    [],
  ],
  ["a refund of before that is taken back", [["reclaim", -20, "gone"]], []],
  [
    "more refunded than has left",
    [
      ["recharge", 20, "gone"],
      ["recharge", 1, "other"],
    ],
    [/never charged/],
  ],
  [
    "its refund, twice",
    [
      ["recharge", 10, "gone"],
      ["recharge", 10, "gone"],
    ],
    [/this request once more/],
  ],
  [
    "a later charge that is refunded twice",
    [
      ["consume", -10, "new"],
      ["recharge", 10, "new"],
      ["recharge", 10, "new"],
    ],
    [/this request once more/],
  ],
  [
    "a later charge of which less is refunded",
    [
      ["consume", -10, "new"],
      ["recharge", 9, "new"],
    ],
    [/refunded 9/],
  ],
  [
    "a later charge, made again",
    [
      ["consume", -10, "new"],
      ["reclaim", -10, "new"],
    ],
    [/not refunded again/],
  ],
])("behind trimmed charges: %s", (_, steps, messages) => {
  expect(foundBehindTrimmed(steps)).toEqual(messages.map((message) => expect.stringMatching(message)));
});
