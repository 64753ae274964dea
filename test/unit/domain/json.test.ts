import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { isObject, parseJson, parseObject } from "../../../src/domain/json.ts";

const refused = (text: string): string => {
  const parsed = parseJson(text);
  if (parsed.ok) throw new Error(`accepted: ${text.slice(0, 100)}`);
  return parsed.message;
};

/** Any JSON value of at most six levels; objects have no duplicates, since they are objects. */
const jsonValue = fc.jsonValue({ maxDepth: 6 });

describe("parseJson", () => {
  test("agrees with JSON.parse on whatever JSON.stringify writes, white space or not", () => {
    fc.assert(
      fc.property(jsonValue, fc.constantFrom(undefined, 1, "\t"), (value, space) => {
        const text = JSON.stringify(value, null, space);
        expect(parseJson(text)).toEqual({ ok: true, value: JSON.parse(text) });
      }),
    );
  });

  test("never accepts what JSON.parse refuses, and never throws", () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.string({ unit: fc.constantFrom(...'{}[]":,\\ 1at') })), (text) => {
        let valid = true;
        try {
          JSON.parse(text);
        } catch {
          valid = false;
        }
        const parsed = parseJson(text);
        if (!valid) expect(parsed.ok).toBe(false);
      }),
      { numRuns: 500 },
    );
  });

  test("finds a duplicate inserted into any object at any depth, also when it is written with escapes", () => {
    const object = fc.dictionary(fc.string({ minLength: 1 }), jsonValue, { minKeys: 1, maxKeys: 4 });
    const wrap = fc.array(fc.constantFrom("array", "object"), { maxLength: 8 });
    fc.assert(
      fc.property(object, fc.nat(), wrap, fc.boolean(), jsonValue, (value, pick, wraps, escaped, other) => {
        const names = Object.keys(value);
        const name = names[pick % names.length]!;
        const written = escaped
          ? `"${[...Array(name.length).keys()].map((at) => `\\u${name.charCodeAt(at).toString(16).padStart(4, "0")}`).join("")}"`
          : JSON.stringify(name);
        let text = `{${written}:${JSON.stringify(other)},${JSON.stringify(value).slice(1)}`;
        for (const kind of wraps) text = kind === "array" ? `[1,${text}]` : `{"w":${text}}`;
        expect(() => JSON.parse(text)).not.toThrow();
        expect(parseJson(text)).toMatchObject({ ok: false, message: expect.stringContaining("duplicate") });
      }),
    );
  });

  test.each([
    '{"a":1,"a":1}',
    '{"a":1,"\\u0061":2}',
    '{"":1,"":2}',
    '{"__proto__":1,"__proto__":2}',
    '{"x":{"a":1,"b":2,"a":3}}',
    '[{"a":[{"b":1,"b":2}]}]',
    '{"1":0,"a":0,"1":0}',
    '{"a:":1,"a:":2}',
  ])("refuses the duplicate in %s", (text) => {
    expect(refused(text)).toContain("duplicate");
  });

  test.each(['{"a":{"a":1},"b":{"a":1}}', '[{"a":1},{"a":1}]', '{"a":":","b":"\\":"}', '{"a\\\\":1,"a":2}'])(
    "accepts %s, where nothing is sent twice",
    (text) => {
      expect(parseJson(text)).toEqual({ ok: true, value: JSON.parse(text) });
    },
  );

  test("keeps __proto__ as an own name", () => {
    const parsed = parseJson('{"__proto__":{"x":1}}');
    expect(parsed.ok && Object.keys(parsed.value as object)).toEqual(["__proto__"]);
  });

  test.each(["[", '{"a":', '{"a":[', "[{"])(
    "500,000 levels of %s are refused without overflowing the stack",
    (open) => {
      expect(refused(open.repeat(500_000))).toContain("nested");
    },
  );

  test("brackets inside strings are not nesting", () => {
    const text = JSON.stringify({ prompt: "[{".repeat(1000) });
    expect(parseJson(text).ok).toBe(true);
  });

  test.each(["", " ", "\r\n"])("an empty body (%j) is called empty", (text) => {
    expect(refused(text)).toBe("the body is empty");
  });

  test.each([
    "{",
    "}",
    "{'a':1}",
    '{"a":1,}',
    "NaN",
    "undefined",
    '"\n"',
    '{"a":1}{"b":2}',
    '{"a":01}',
    '"\\',
  ])("%j is not JSON", (text) => {
    expect(refused(text)).toBe("the body is not valid JSON");
  });

  test("a byte order mark is not white space, and is named", () => {
    expect(refused('\ufeff{"a":1}')).toBe("the body begins with a byte order mark; send UTF-8 without one");
  });
});

describe("more values than any request or answer has are refused before they are made", () => {
  const list = (count: number, value: string): string => `[${Array(count).fill(value).join()}]`;

  test("a body may have 2000", () => {
    expect(parseJson(list(1998, "0")).ok).toBe(true);
    expect(refused(list(2000, "0"))).toBe("the body has more than 2000 values");
    expect(refused(`{"shots":${list(32_000, "{}")}}`)).toBe("the body has more than 2000 values");
  });

  test("commas and brackets inside strings are none", () => {
    expect(parseJson(JSON.stringify({ prompt: ",[{".repeat(10_000) })).ok).toBe(true);
  });

  // An upstream's 1 MiB of brackets took 370 ms to parse.
  test("an upstream's answer may have 20,000", () => {
    expect(parseObject(`{"data":${list(19_990, "0")}}`)).toBeDefined();
    expect(parseObject(`{"data":${list(20_000, "0")}}`)).toBeUndefined();
    expect(parseObject(`{"data":${list(40_000, `${"[".repeat(13)}${"]".repeat(13)}`)}}`)).toBeUndefined();
    expect(parseObject(`{"data":${"[".repeat(33)}${"]".repeat(33)}}`)).toBeUndefined();
  });
});

// A reviver is called for each value, which takes ten times as long as the parsing.
test("digits in a string are no long number, and a long number is kept beside them", () => {
  const text = '{"url":"https://a/12345678901234567890","id":12345678901234567890}';
  expect(JSON.stringify(parseObject(text))).toBe(text);
});

test("isObject takes objects, and neither null nor arrays nor scalars", () => {
  expect(isObject({})).toBe(true);
  for (const value of [null, [], "a", 1, true, undefined]) expect(isObject(value)).toBe(false);
});
