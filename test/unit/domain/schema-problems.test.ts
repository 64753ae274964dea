import fc from "fast-check";
import { Type } from "typebox";
import { Value } from "typebox/value";
import { describe, expect, test } from "vitest";
import { knownOnly, schemaProblems, unknownMembers } from "../../../src/domain/schema-problems.ts";

const closed = { additionalProperties: false } as const;
const limit = Type.Object({ per_minute: Type.Integer() }, closed);
const schema = Type.Object(
  {
    name: Type.String(),
    limits: Type.Optional(limit),
    shots: Type.Optional(Type.Array(limit)),
    price: Type.Optional(Type.Union([Type.Integer(), limit])),
    tiers: Type.Optional(Type.Object({}, { ...closed, patternProperties: { "^[a-z]+$": limit } })),
    metadata: Type.Optional(Type.Unsafe<object>({ type: "object", additionalProperties: true })),
  },
  { ...closed, minProperties: 1 },
);
const many = Object.fromEntries(Array.from({ length: 5000 }, (_, at) => [`x${at}`, 1]));
const inWords = (value: unknown) =>
  schemaProblems(schema, value).map(({ path, message }) => `${path}: ${message}`);

// Guarantee: what a schema refuses has a reason, whatever else is wrong with it.
test("every value that the schema refuses has a problem, and their number is bounded", () => {
  const member = fc.oneof(
    fc.integer(),
    fc.constant(many),
    fc.constant({ per_minute: 1, ...many }),
    fc.jsonValue(),
  );
  const object = fc.dictionary(
    fc.oneof(
      fc.constantFrom("name", "limits", "shots", "price", "tiers", "metadata", "__proto__"),
      fc.string(),
    ),
    member,
  );
  fc.assert(
    fc.property(fc.oneof(object, fc.jsonValue()), (value) => {
      fc.pre(!Value.Check(schema, value));
      const problems = schemaProblems(schema, value);
      expect(problems.length).toBeGreaterThan(0);
      expect(problems.length).toBeLessThanOrEqual(30);
    }),
  );
});

test("unknown members come first, and do not hide what else is wrong", () => {
  const problems = inWords({ ...many, nmae: 1 });
  expect(problems[0]).toBe("/x0: x0 is not a known parameter");
  expect(problems.at(-1)).toBe("/name: name is required");
});

test("a misspelt member alone is not also too few members", () => {
  const atLeastOne = Type.Object({ label: Type.Optional(Type.String()) }, { ...closed, minProperties: 1 });
  expect(schemaProblems(atLeastOne, { lable: "a" })).toHaveLength(1);
  expect(schemaProblems(atLeastOne, {})).toHaveLength(1);
});

describe("unknown members are found and left out", () => {
  test.each<[string, object, string]>([
    ["in the object itself", { nam: 1 }, "/nam"],
    ["in an object within it", { limits: { per_minute: 1, x: 1 } }, "/limits/x"],
    ["in an item of a list", { shots: [{ per_minute: 1 }, { x: 1 }] }, "/shots/1/x"],
    ["in the object branch of a union", { price: { per_minute: 1, x: 1 } }, "/price/x"],
    ["in an object whose name a pattern allows", { tiers: { a: { x: 1 } } }, "/tiers/a/x"],
    ["where no pattern allows the name", { tiers: { A: { per_minute: 1 } } }, "/tiers/A"],
  ])("%s", (_, more, path) => {
    const value = { name: "a", ...more };
    const found = [...unknownMembers(schema, value)].map(({ keys, name }) => `/${[...keys, name].join("/")}`);
    expect(found).toEqual([path]);
    expect([...unknownMembers(schema, knownOnly(schema, value))]).toEqual([]);
  });

  test("and an object that may have any members keeps all", () => {
    const value = { name: "a", metadata: { x: { y: [1] } } };
    expect(knownOnly(schema, value)).toEqual(value);
    expect([...unknownMembers(schema, value)]).toEqual([]);
  });
});
