import { expect, test } from "vitest";
import { ScriptCall } from "../../../src/store/script-call.ts";

// What ioredis calls a command with, beyond its types.
interface Called {
  resolve(reply: unknown): void;
  reject(error: Error): void;
  setTimeout(ms: number): void;
}

const givenCall = (): ScriptCall & Called => new ScriptCall("evalsha", ["sha", 1, "name", 5]);

// Guarantee: V8's young collector can let a call go, which it cannot while the call has functions of its own.
test("a call settles in methods of its class, whatever ioredis' own commands do", () => {
  const call = givenCall();
  expect(Object.hasOwn(call, "resolve")).toBe(false);
  expect(Object.hasOwn(call, "reject")).toBe(false);
});

test("its words are those of the protocol, numbers in words", () => {
  const text = String(givenCall().toWritable({}));
  expect(text).toBe(
    ["*5", "$7", "evalsha", "$3", "sha", "$1", "1", "$4", "name", "$1", "5", ""].join("\r\n"),
  );
});

test("a reply is answered as text, and one that comes after the timeout changes nothing", async () => {
  const call = givenCall();
  call.setTimeout(1000);
  call.resolve([Buffer.from("bound"), 3]);
  await expect(call.promise).resolves.toEqual(["bound", 3]);

  const late = givenCall();
  late.setTimeout(1);
  await expect(late.promise).rejects.toThrow("Command timed out");
  late.resolve(Buffer.from("too late"));
  await expect(late.promise).rejects.toThrow("Command timed out");
});

test("an error is answered as it came", async () => {
  const call = givenCall();
  call.reject(new Error("NOSCRIPT No matching script"));
  await expect(call.promise).rejects.toThrow("NOSCRIPT No matching script");
});

test("a reply that cannot be read is an error of its call, not of the process", async () => {
  const call = givenCall();
  const unreadable = Buffer.from("reply");
  unreadable.toString = () => {
    throw new Error("Cannot create a string longer than 0x1fffffe8 characters");
  };
  call.resolve(unreadable);
  await expect(call.promise).rejects.toThrow("Cannot create a string");
});
