import { expect, test } from "vitest";
import { CallbackLimits } from "../../../src/gateway/callbacks.ts";

const target = (nth: number) => ({ partition: 0, requestId: `req_${nth}` });

test("a process works on 128 callbacks at a time; the next one is refused until one has ended", () => {
  const limits = new CallbackLimits(() => 0);
  for (let nth = 0; nth < 128; nth++) expect(limits.begin(target(nth))).toBeUndefined();
  expect(limits.begin(target(128))).toBe(0);
  limits.end();
  expect(limits.begin(target(128))).toBeUndefined();
  expect(limits.begin(target(129))).toBe(0);
});

test("a request is called back about five times at once, then once in two seconds; another one is not held up", () => {
  let nowMs = 0;
  const limits = new CallbackLimits(() => nowMs);
  for (let time = 0; time < 5; time++) expect(limits.begin(target(1))).toBeUndefined();
  expect(limits.begin(target(1))).toBe(2000);
  expect(limits.begin(target(2))).toBeUndefined();
  nowMs = 1999;
  expect(limits.begin(target(1))).toBeGreaterThan(0);
  for (nowMs = 2000; nowMs <= 6000; nowMs += 2000) {
    expect(limits.begin(target(1))).toBeUndefined();
    expect(limits.begin(target(1))).toBe(2000);
  }
  nowMs = 3_600_000;
  for (let time = 0; time < 5; time++) expect(limits.begin(target(1)), "an hour later").toBeUndefined();
  expect(limits.begin(target(1))).toBe(2000);
});

test("guesses write one line a second, however many there are", () => {
  let nowMs = 0;
  const limits = new CallbackLimits(() => nowMs);
  const results = Array.from({ length: 10_000 }, (_, guess) => {
    nowMs = guess / 5;
    return limits.isLogged();
  });
  expect(results.filter((isQuiet) => !isQuiet)).toHaveLength(2);
});

test("an address guesses a hundred tokens, then has to wait", () => {
  const limits = new CallbackLimits(() => 0);
  for (let guess = 0; guess < 100; guess++) expect(limits.forged("192.0.2.1")).toBe(0);
  expect(limits.forged("192.0.2.1")).toBe(600);
  expect(limits.forged("192.0.2.2")).toBe(0);
});
