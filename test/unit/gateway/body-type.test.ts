import { expect, test } from "vitest";
import type { RequestHead } from "../../../src/gateway/protocol.ts";
import { jsonHeadFault } from "../../../src/gateway/protocol.ts";

const fault = (contentType: string) =>
  jsonHeadFault({ contentType, contentEncoding: false, contentLength: 2 } as RequestHead)?.name;

test.each([
  "application/json",
  "application/json;",
  "application/json; charset=utf-8",
  'APPLICATION/JSON;charset="UTF-8"',
  "application/json ; charset=utf-8;",
  "application/json; charset=UTF8",
  'application/json; charset="utf8"',
])("%s is JSON", (contentType) => expect(fault(contentType)).toBeUndefined());

test.each([
  "text/json",
  "application/jsonx",
  "application/json; charset=latin1",
  "application/json charset=utf-8",
  "",
])("%s is not", (contentType) => expect(fault(contentType)).toBe("unsupported_media_type"));

// Guarantee: a pattern never has 16 KB of header to backtrack over; that stalled every other customer.
test("a value that is longer than any client needs is refused unread, even a good one", () => {
  const padded = (chars: number): string => `application/json;${" ".repeat(chars)}charset=utf-8`;
  expect(fault(padded(50))).toBeUndefined();
  expect(fault(padded(100))).toBe("unsupported_media_type");
});
