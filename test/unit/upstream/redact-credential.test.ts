import fc from "fast-check";
import { expect, test } from "vitest";
import { withoutBegunSecret, withoutSecret } from "../../../src/upstream/answer.ts";

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

/** How JSON may write a character: as it is, behind a backslash, by its number in small or capital digits. */
const SPELLINGS: readonly ((char: string) => string)[] = [
  (char) => JSON.stringify(char).slice(1, -1),
  (char) => (char === "/" ? "\\/" : JSON.stringify(char).slice(1, -1)),
  (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`,
  (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0").toUpperCase()}`,
];
const spelledBy = (text: string, spelling: (at: number) => number): string =>
  [...text].map((char, at) => SPELLINGS[spelling(at)]!(char)).join("");

// Guarantee: however an encoder mixes the spellings, what a JSON parser reads has the credential no more.
test("what a client parses never has the credential in it, whatever the mix of spellings", () => {
  const secrets = fc.string({ unit: fc.constantFrom(...'ab/\\"u0'), minLength: 8, maxLength: 12 });
  const around = fc.string({ unit: fc.constantFrom(...'ab/\\"u0\n'), maxLength: 12 });
  const spellings = fc.array(fc.nat({ max: 3 }), { minLength: 1, maxLength: 50 });
  fc.assert(
    fc.property(
      secrets,
      fc.array(around, { minLength: 2, maxLength: 4 }),
      spellings,
      (secret, parts, mix) => {
        // Also a beginning of the credential in front of it, which a search must not lose its place over.
        const words = parts.join(secret.slice(0, 5) + secret);
        const text = `{"msg":"${spelledBy(words, (at) => mix[at % mix.length]!)}"}`;
        expect(JSON.parse(withoutSecret(secret)(text))).toEqual({
          msg: words.replaceAll(secret, "[redacted]"),
        });
      },
    ),
    { numRuns: 2000 },
  );
});

const JWT = `eyJhbGciOiJFUzI1NiJ9.${"eyJpc3MiOiJ0b2xsZ2F0ZSIsInNjb3BlIjoiYS9iIn0".repeat(12)}.${"Zm9v/YmFy+".repeat(8)}`;

/** A text that counts how often a character of it is looked at. */
function counting(text: string) {
  let looks = 0;
  const counted = {
    length: text.length,
    charCodeAt: (at: number) => {
      looks++;
      return text.charCodeAt(at);
    },
    includes: (part: string) => {
      looks += text.length;
      return text.includes(part);
    },
    slice: text.slice.bind(text),
  };
  return { text: counted as unknown as string, looks: () => looks };
}

// Guarantee: an upstream that repeats a beginning of our credential cannot hold up the process. A pattern with three
// equal alternatives took 3^n steps over a beginning of n characters.
test.each([0, 1, 2, 3])(
  "each beginning of a long credential costs a few looks a character, spelling %i",
  (spelling) => {
    const clean = withoutSecret(JWT);
    for (let chars = 1; chars <= JWT.length; chars++) {
      const beginning = spelledBy(JWT.slice(0, chars), () => spelling);
      for (const broken of [`${beginning}\\`, `${beginning}\\u00`, `${beginning}\\x`.repeat(4)]) {
        const { text, looks } = counting(broken);
        clean(text);
        expect(looks()).toBeLessThanOrEqual(12 * broken.length);
      }
    }
  },
);

test("twice the text costs twice the looks, also where the credential repeats itself", () => {
  const hostile = (chars: number): string => `${"a".repeat(511)}\\`.repeat(chars / 512);
  const looksAt = (chars: number): number => {
    const { text, looks } = counting(hostile(chars));
    withoutSecret("a".repeat(512))(text);
    return looks();
  };
  expect(looksAt(1 << 18) / looksAt(1 << 17)).toBeCloseTo(2, 1);
});

test("an empty credential changes nothing", () => {
  expect(withoutSecret("")("any words")).toBe("any words");
});

// A line feed is no letter, though JSON writes it with one.
test("a short credential stands alone also behind an escape", () => {
  expect(withoutSecret("task")('{"msg":"no\\ntask\\tof"}')).toBe('{"msg":"no\\n[redacted]\\tof"}');
});

test("the beginning of our credential at the end of a text that was cut is not shown", () => {
  const redact = withoutBegunSecret("secret-of-ours");
  expect(redact("Bearer secret-of-our")).toBe("Bearer ");
  expect(redact("Bearer s")).toBe("Bearer ");
  expect(redact("Bearer secret-x")).toBe("Bearer secret-x");
  expect(withoutBegunSecret(undefined)("text")).toBe("text");
});
