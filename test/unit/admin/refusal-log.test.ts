import type { IncomingMessage } from "node:http";
import { expect, test } from "vitest";
import { createRefusalLog, shortened } from "../../../src/admin/refusal-log.ts";
import { createLogger } from "../../../src/telemetry/log.ts";

const request = (url: string) =>
  ({ method: "POST", url, socket: { remoteAddress: "10.0.0.1" } }) as unknown as IncomingMessage;

test("a kind has 20 lines a minute at any log level, and the next one says how many were left out", () => {
  const lines: { reason: string; left_out?: number }[] = [];
  const counted: string[] = [];
  let nowMs = 0;
  const refusals = createRefusalLog({
    log: createLogger("fatal", { write: (line) => void lines.push(JSON.parse(line)) }),
    counted: (reason) => void counted.push(reason),
    nowMs: () => nowMs,
  });
  const refuse = (times: number) => {
    for (let at = 0; at < times; at++) refusals.signIn("wrong_token", request("/config"));
  };
  refuse(50);
  expect(lines).toHaveLength(20);
  refusals.signIn("other_site", request("/config"));
  expect(lines.at(-1)).toMatchObject({ reason: "other_site", path: "/config" });
  nowMs = 60_000;
  refuse(25);
  expect(lines).toHaveLength(41);
  expect(lines.map(({ left_out }) => left_out).filter((one) => one !== undefined)).toEqual([30]);
  expect(counted).toHaveLength(76);
});

test.each([
  ["letters", "x".repeat(20_000)],
  ["control characters", "\u0001".repeat(20_000)],
  ["characters beyond Latin", "é字😀".repeat(5000)],
  ["half of a surrogate pair", "\ud800".repeat(5000)],
  ["as many as there is room for", "x".repeat(239)],
])("a text of %s takes at most 240 bytes", (_, text) => {
  expect(Buffer.byteLength(JSON.stringify(shortened(text)))).toBeLessThanOrEqual(243);
});

test("a short text stays as it is", () => expect(shortened("/manage/v1/é")).toBe("/manage/v1/é"));

// Guarantee: whoever reaches the port has nothing obeyed by the terminal that shows the log.
test("what a terminal would obey is escaped, also where JSON leaves it as it is", () => {
  const written: string[] = [];
  const log = createLogger("info", { write: (line) => void written.push(line) });
  const refusals = createRefusalLog({ log, counted: () => undefined });
  refusals.signIn("no_token", request("/manage/v1/%c2%9b2J%1b%5b2J%e2%80%ae"));
  expect(JSON.parse(written[0]!)).toMatchObject({ path: "/manage/v1/\\u009b2J\\u001b[2J\\u202e" });
});
