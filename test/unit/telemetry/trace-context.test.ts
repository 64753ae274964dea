import { describe, expect, test } from "vitest";
import { isTraceState, parseTraceParent, passingOn, traceParentText } from "../../../src/telemetry/trace.ts";

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN = "00f067aa0ba902b7";

describe("traceparent, W3C Trace Context 3.2", () => {
  test("version 00 is read and written", () => {
    const parent = parseTraceParent(`00-${TRACE}-${SPAN}-01`);
    expect(parent).toEqual({ traceId: TRACE, spanId: SPAN, sampled: true, random: false });
    expect(traceParentText(parent!)).toBe(`00-${TRACE}-${SPAN}-01`);
    expect(traceParentText(parseTraceParent(`00-${TRACE}-${SPAN}-02`)!)).toBe(`00-${TRACE}-${SPAN}-02`);
  });

  test("of a version to come what 00 has is read; flags that 00 does not know are not sent on", () => {
    for (const value of [`01-${TRACE}-${SPAN}-09`, `cc-${TRACE}-${SPAN}-01-what-the-future-will-be-like`]) {
      expect(traceParentText(parseTraceParent(value)!)).toBe(`00-${TRACE}-${SPAN}-01`);
    }
  });

  test.each([
    undefined,
    "",
    `ff-${TRACE}-${SPAN}-01`,
    `00-${"0".repeat(32)}-${SPAN}-01`,
    `00-${TRACE}-${"0".repeat(16)}-01`,
    `00-${TRACE.toUpperCase()}-${SPAN}-01`,
    `00-${TRACE}-${SPAN}-1`,
    `00-${TRACE}-${SPAN}-01-more`,
    `00-${TRACE}-${SPAN}-01.`,
    `01-${TRACE}-${SPAN}-01.more`,
    `00-${TRACE}-${SPAN}-xy`,
    `0-${TRACE}-${SPAN}-01`,
    `00-${TRACE}0-${SPAN}-01`,
    `00-${TRACE}-${SPAN}`,
    ` 00-${TRACE}-${SPAN}-01`,
    `00-${TRACE}-${SPAN}-01\n`,
  ])("%j is as good as none", (value) => {
    expect(parseTraceParent(value)).toBeUndefined();
  });
});

describe("tracestate, W3C Trace Context 3.3", () => {
  test.each(["a=1", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "t@v=x , b=2\t,", "0key=a b!", "a= lead"])(
    "%j is passed on",
    (value) => expect(isTraceState(value)).toBe(true),
  );

  test.each([
    "",
    ",",
    "a",
    "A=1",
    "a=1=2",
    "a=",
    "a=\u00e9",
    "a=1,a=2",
    "a=1,\u000bb=2",
    "a=1\u00a0",
    `${"k".repeat(257)}=1`,
    `a=${"v".repeat(257)}`,
    Array.from({ length: 33 }, (_, n) => `k${n}=1`).join(","),
  ])("%j is dropped", (value) => {
    expect(isTraceState(value)).toBe(false);
  });

  // Guarantee: nobody, key or not, holds up all others by a header of spaces. A pattern that tries each of them anew
  // takes 0.2 s a header, and would meet this test's own timeout.
  test("one that is nearly all spaces costs next to nothing", () => {
    const spaces = `a=b${" ".repeat(16_000)}c`;
    for (let n = 0; n < 200; n++) expect(isTraceState(spaces)).toBe(false);
  });

  test("32 members are not too many", () => {
    expect(isTraceState(Array.from({ length: 32 }, (_, n) => `k${n}=1`).join(","))).toBe(true);
  });
});

test("without an endpoint what came is passed on as it came, and nothing else is", () => {
  const future = `cc-${TRACE}-${SPAN}-09-more`;
  expect(passingOn.begin(future, "a=1", 0)).toEqual({
    traceId: TRACE,
    headers: ["traceparent", future, "tracestate", "a=1"],
    spans: undefined,
  });
  expect(passingOn.begin(future, "BAD", 0)?.headers).toEqual(["traceparent", future]);
  expect(passingOn.begin(undefined, "a=1", 0)).toBeUndefined();
  expect(passingOn.begin("nonsense", "a=1", 0)).toBeUndefined();
});
