import type { TSchema } from "typebox";
import { Value } from "typebox/value";
import type { Problem } from "./errors.ts";
import { isObject } from "./json.ts";
import { DETAILS_MAX, pointerTo, problemsOf, unknownName } from "./problems.ts";

const UNKNOWN_MAX = DETAILS_MAX / 2;

interface Members {
  readonly properties?: Readonly<Record<string, TSchema>>;
  readonly patternProperties?: Readonly<Record<string, TSchema>>;
  readonly additionalProperties?: boolean;
  readonly items?: TSchema;
  readonly anyOf?: readonly TSchema[];
}

export interface UnknownMember {
  readonly keys: readonly string[];
  readonly name: string;
  readonly known: readonly string[];
  readonly owner: TSchema;
}

/** At least one, unknown members first. typebox gets the value without them, because enough of them fill its list. */
export function schemaProblems(schema: TSchema, value: unknown): Problem[] {
  const unknown = [...unknownMembers(schema, value).take(UNKNOWN_MAX)].map(({ keys, name, known }) =>
    unknownName(keys.map(pointerTo).join(""), name, known),
  );
  const errors = Value.Errors(schema, knownOnly(schema, value));
  // An object may be empty only because its members are unknown.
  const further = errors.filter(({ keyword }) => keyword !== "minProperties" || unknown.length === 0);
  const problems = [...unknown, ...problemsOf(further)];
  return problems.length > 0 ? problems : [{ path: "", message: "the body is not valid" }];
}

export function* unknownMembers(
  schema: TSchema,
  value: unknown,
  keys: readonly string[] = [],
): Generator<UnknownMember, undefined> {
  const owner = branchFor(schema, value);
  if (Array.isArray(value)) {
    if (!owner.items) return;
    for (const [at, item] of value.entries()) yield* unknownMembers(owner.items, item, [...keys, String(at)]);
  }
  if (!isObject(value)) return;
  for (const [name, given] of Object.entries(value)) {
    const member = memberOf(owner, name);
    if (member) yield* unknownMembers(member, given, [...keys, name]);
    else if (isClosed(owner)) yield { keys, name, known: Object.keys(owner.properties ?? {}), owner };
  }
}

export function knownOnly(schema: TSchema, value: unknown): unknown {
  const owner = branchFor(schema, value);
  const { items } = owner;
  if (Array.isArray(value)) return items ? value.map((item) => knownOnly(items, item)) : value;
  if (!isObject(value)) return value;
  const known = Object.entries(value).flatMap(([name, given]) => {
    const member = memberOf(owner, name);
    if (member) return [[name, knownOnly(member, given)]];
    return isClosed(owner) ? [] : [[name, given]];
  });
  return Object.fromEntries(known);
}

function branchFor(schema: TSchema, value: unknown): Members & TSchema {
  const { anyOf } = schema as Members;
  const member = isObject(value) ? "properties" : Array.isArray(value) ? "items" : undefined;
  const branch = member === undefined ? undefined : anyOf?.find((each) => member in each);
  return branch ?? schema;
}

function memberOf({ properties = {}, patternProperties = {} }: Members, name: string): TSchema | undefined {
  if (Object.hasOwn(properties, name)) return properties[name];
  return Object.entries(patternProperties).find(([pattern]) => new RegExp(pattern, "u").test(name))?.[1];
}

const isClosed = ({ additionalProperties }: Members): boolean => additionalProperties === false;
