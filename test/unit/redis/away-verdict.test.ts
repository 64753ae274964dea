import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { createAwayVerdict } from "../../../src/redis/away-verdict.ts";
import { StoreError } from "../../../src/redis/reasons.ts";
import { createLogger } from "../../../src/telemetry/log.ts";

beforeEach(() => void vi.useFakeTimers({ toFake: ["performance"] }));
afterEach(() => void vi.useRealTimers());

const named = (name: string, message: string): Error => Object.assign(new Error(message), { name });
const ofSystem = (code: string): Error =>
  Object.assign(new Error(`connect ${code}`), { code, syscall: "connect" });
const UNREACHABLE = [
  ...["ECONNREFUSED", "ECONNRESET", "EHOSTUNREACH", "ENOTFOUND", "ETIMEDOUT"].map(ofSystem),
  ...["Connection is closed.", "Command timed out", "no answer to the handshake"].map(
    (text) => new Error(text),
  ),
];
const ANSWERS = [
  ...[
    "WRONGPASS x",
    "NOAUTH x",
    "NOPERM x",
    "LOADING x",
    "READONLY x",
    "CLUSTERDOWN x",
    "ERR Command timed out",
  ].map((text) => named("ReplyError", text)),
  new StoreError("its policy may evict keys"),
  ofSystem("CERT_HAS_EXPIRED"),
  ofSystem("ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED"),
  new Error("what nobody has thought of"),
];

function givenOutage(failures: (Error | undefined)[]) {
  const lines: string[] = [];
  const probe = async (): Promise<void> => {
    const failure = failures.length > 1 ? failures.shift() : failures[0];
    if (failure) throw failure;
  };
  const log = createLogger("info", { write: (line) => void lines.push(line) });
  const { known, over } = createAwayVerdict({ isOpen: () => true, probe, log });
  return { known, over, lines };
}

test.each(UNREACHABLE)("Redis is away if it cannot be reached: %s", async (failure) => {
  const { known, lines } = givenOutage([failure]);
  expect(await known.outage()).toBeGreaterThan(0);
  expect(lines.join()).toContain("Redis is away");
});

test.each(ANSWERS)("an answer is no outage, and an error in the log: %s", async (failure) => {
  const { known, lines } = givenOutage([failure]);
  expect(await known.outage()).toBeUndefined();
  expect(JSON.parse(lines[0]!)).toMatchObject({
    level: "error",
    msg: expect.stringContaining("Redis answers"),
  });
});

// Guarantee: where requests are rare, none passes by what a probe of long ago has found.
test("a request waits for a new verdict once the last one is two seconds old", async () => {
  const { known } = givenOutage([UNREACHABLE[0], ANSWERS[0]]);
  const first = await known.outage();
  expect(first).toBeGreaterThan(0);
  vi.advanceTimersByTime(900);
  expect(await known.outage()).toBe(first);
  vi.advanceTimersByTime(1200);
  expect(await known.outage()).toBeUndefined();
});

// Guarantee: `store.allow_max_per_key` counts anew in each outage, also behind a failover.
test("no two outages have the same number, of one primary or of one that took over from it", async () => {
  const [first, second] = [givenOutage([UNREACHABLE[0]]), givenOutage([UNREACHABLE[0]])];
  const numbers = [];
  for (const { known, over } of [first, second, first, second]) {
    numbers.push(await known.outage());
    over(true);
  }
  expect(new Set(numbers).size).toBe(4);
});
