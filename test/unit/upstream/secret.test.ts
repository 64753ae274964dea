import { expect, test } from "vitest";
import { withoutSecret } from "../../../src/upstream/secret.ts";

test("without a credential nothing is changed", () => {
  expect(withoutSecret(undefined)("any [words]")).toBe("any [words]");
});

test.each([
  ["plain", "key up_4f9a81c0 is invalid", "key [redacted] is invalid"],
  ["within a word", "tokenup_4f9a81c0x", "token[redacted]x"],
  ["twice", "up_4f9a81c0up_4f9a81c0", "[redacted][redacted]"],
])("a credential is taken out: %s", (_, text, kept) => {
  expect(withoutSecret("up_4f9a81c0")(text)).toBe(kept);
});

test.each([
  ["a slash", 'ab/cd"ef\\gh', ['ab/cd\\"ef\\\\gh', 'ab\\/cd\\"ef\\\\gh']],
  ["a short one", 'a/"\\', ['a/\\"\\\\', 'a\\/\\"\\\\']],
])("as JSON may write it: %s", (_, secret, forms) => {
  for (const form of forms) {
    expect(withoutSecret(secret)(`{"msg":"bad key ${form}."}`)).toBe('{"msg":"bad key [redacted]."}');
  }
});

// Encoders that escape what HTML or URLs give a meaning, such as .NET's, write characters by their numbers.
test("as an encoder writes it that knows numbers only", () => {
  const clean = withoutSecret("up+key/=S3cret");
  expect(clean('{"error":"bad key up\\u002Bkey/\\u003DS3cret."}')).toBe('{"error":"bad key [redacted]."}');
  expect(clean('{"error":"\\u0075p\\u002bkey\\/\\u003dS3cret"}')).toBe('{"error":"[redacted]"}');
});

test.each(["k", "task", "success", "4", "$&"])(
  "a short credential leaves the words it is a part of alone: %s",
  (secret) => {
    const answer =
      '{"code":200,"msg":"successful","data":{"task_id":"task-4k_success$&x","kept":"task_success"}}';
    expect(withoutSecret(secret)(answer)).toBe(answer);
    expect(withoutSecret(secret)(`no account for Bearer ${secret}: see "${secret}"`)).toBe(
      'no account for Bearer [redacted]: see "[redacted]"',
    );
  },
);
