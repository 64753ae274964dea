import { EventEmitter } from "node:events";
import type { IncomingMessage } from "node:http";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { drainBody } from "../../../src/gateway/body.ts";

const MIB = 1024 * 1024;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A refused request whose body is still coming. */
function given() {
  const seen = { gaveUp: 0, destroyed: 0, bytes: 0 };
  const req = Object.assign(new EventEmitter(), {
    complete: false,
    destroyed: false,
    socket: {},
    resume: () => undefined,
    destroy: () => void seen.destroyed++,
  });
  const onRead = (_socket: unknown, bytes: number): void => {
    seen.bytes += bytes;
  };
  drainBody(req as unknown as IncomingMessage, onRead, () => void seen.gaveUp++);
  return { seen, come: (bytes: number) => req.emit("data", Buffer.alloc(bytes)), end: () => req.emit("end") };
}

// Guarantee: a refused body costs a bounded number of bytes, of pieces and of time.
test("32 MiB are read and forgotten, then the connection ends, once", () => {
  const { seen, come } = given();
  for (let nth = 0; nth < 32; nth++) come(MIB);
  expect(seen.gaveUp).toBe(0);
  for (let nth = 0; nth < 3; nth++) come(1);
  expect(seen.gaveUp).toBe(1);
});

test("10,000 pieces are read and forgotten, then the connection ends, once", () => {
  const { seen, come } = given();
  for (let nth = 0; nth < 10_000; nth++) come(1);
  expect(seen).toMatchObject({ gaveUp: 0, bytes: 10_000 });
  for (let nth = 0; nth < 3; nth++) come(1);
  expect(seen.gaveUp).toBe(1);
});

test("after ten seconds the connection ends, unless the body has ended before", () => {
  const { seen } = given();
  vi.advanceTimersByTime(10_000);
  expect(seen.destroyed).toBe(1);
  const inTime = given();
  inTime.end();
  vi.advanceTimersByTime(60_000);
  expect(inTime.seen.destroyed).toBe(0);
});
