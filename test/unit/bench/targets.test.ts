import { expect, test } from "vitest";
import { printed, template } from "../../../bench/recorder.ts";
import { SCENARIOS } from "../../../bench/scenarios/index.ts";
import { judge, TARGET_NAMES } from "../../../bench/targets.ts";

test("every target is judged by exactly one scenario", () => {
  const judged = Object.values(SCENARIOS).flatMap(({ targets }) => targets);
  expect(judged.toSorted()).toEqual(TARGET_NAMES.toSorted());
});

test("a figure at its bound is met, one beyond it is missed, and one that is missing is neither", () => {
  expect(judge("stall", 20)).toMatchObject({ met: true, reached: "20.0 ms" });
  expect(judge("stall", 20.1)).toMatchObject({ met: false });
  expect(judge("workers", 1.5)).toMatchObject({ met: true });
  expect(judge("workers", 1.49)).toMatchObject({ met: false });
  expect(judge("stall", Number.NaN)).toMatchObject({ met: undefined, reached: "not measured" });
});

test("what MONITOR prints with escapes is read as it was sent", () => {
  expect(printed("\\x06\\atg:key:k\\x00\\\\ \\n\\xc3\\xa9")).toBe("\x06\x07tg:key:k\0\\ \n\u00e9");
});

test("a recorded command keeps its words, and names what changes from call to call", () => {
  const names = { task: "t-1", request: "req_1", key: "key_1", account: "acc_1" };
  const words = ["tg:{p07}:request:req_1", "tg:task:t-1", "key_1 acc_1", "", "10", String(Date.now() + 500)];
  expect(words.map((word) => template(word, names, "p07"))).toEqual([
    "tg:{{tag}}:request:{request}",
    "tg:task:{task}",
    "{key} {account}",
    "",
    "10",
    "{soon}",
  ]);
});
