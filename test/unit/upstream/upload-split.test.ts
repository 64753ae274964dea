import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { cutBytes, splitAt } from "../../../src/upstream/upload-form.ts";

const NOTHING = Buffer.alloc(0);

/** Parts that a splitter finds: the bytes between delimiters, joined. */
function split(delimiter: string, chunks: Buffer[], before = NOTHING): string[] {
  const found: string[] = [""];
  const splitter = splitAt(Buffer.from(delimiter), before, {
    between(bytes) {
      expect(bytes.length).toBeGreaterThan(0);
      found.push(found.pop() + bytes.toString("latin1"));
    },
    delimiter: () => found.push(""),
  });
  for (const chunk of chunks) splitter.push(chunk);
  splitter.end();
  return found;
}

const delimiters = fc.constantFrom("\r\n--b", "\r\n---", "\r\n--a-b-", `\r\n--${"-".repeat(70)}`);
const alike = fc.constantFrom("\r", "\n", "\r\n", "-", "--", "a", "b", "\r\n-", "\r\n--", "\0");

test("finds every delimiter and loses no byte, however the bytes are cut", () => {
  fc.assert(
    fc.property(
      delimiters,
      fc.array(fc.oneof(alike, fc.constant("DELIMITER")), { maxLength: 60 }),
      fc.array(fc.nat(400), { maxLength: 40 }),
      (delimiter, pieces, cuts) => {
        const text = pieces.join("").replaceAll("DELIMITER", delimiter);
        const bytes = Buffer.from(text, "latin1");
        const at = [0, ...cuts.map((cut) => Math.min(cut, bytes.length)).sort((a, b) => a - b), bytes.length];
        const chunks = at.slice(1).map((end, i) => bytes.subarray(at[i], end));
        expect(split(delimiter, chunks)).toEqual(text.split(delimiter));
      },
    ),
    { numRuns: 2_000 },
  );
});

test("a delimiter may begin in the bytes before the first", () => {
  expect(split("\r\n--b", [Buffer.from("--bx")], Buffer.from("\r\n"))).toEqual(["", "x"]);
  expect(split("\r\n--b", [Buffer.from("x")], Buffer.from("\r\n"))).toEqual(["\r\nx"]);
});

// Guarantee: what is written on may be freed, so nothing that is still looked at may lie in it.
test("what is held back is a copy; all else is passed on as it lies", () => {
  const given: Buffer[] = [];
  const splitter = splitAt(Buffer.from("\r\n--b"), NOTHING, {
    between: (bytes) => void given.push(Buffer.from(bytes), bytes.fill(0)),
    delimiter: () => {},
  });
  const chunk = Buffer.from("abc\r\n-");
  splitter.push(chunk);
  chunk.fill(0);
  splitter.push(Buffer.from("x"));
  expect(given.filter((_, at) => at % 2 === 0).map(String)).toEqual(["abc", "\r\n-x"]);
  expect(given[1]!.buffer).toBe(chunk.buffer);
});

describe("a chunk", () => {
  test.each([
    ["", 0],
    ["abc", 0],
    ["abc\r", 1],
    ["abc\r\n", 2],
    ["abc\r\n--", 4],
    ["abc\r\n--b", 0],
    ["abc\r\r", 1],
    ["abc\r\n\r\n", 2],
    ["abc\r\nx", 0],
  ])("%j ends in %d bytes of a delimiter", (text, cut) => {
    expect(cutBytes(Buffer.from(text), Buffer.from("\r\n--b"))).toBe(cut);
  });
});
