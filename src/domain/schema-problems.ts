import type { TSchema } from "typebox";
import { Value } from "typebox/value";
import type { Problem } from "./errors.ts";
import { isObject } from "./json.ts";
import { DETAILS_MAX, pointerTo, problemsOf, unknownName } from "./problems.ts";

/** Unknown members that are named in one answer; they leave room for what is missing. */
const UNKNOWN_MAX = DETAILS_MAX / 2;

/** What a schema says of an object's members and of an array's items: the keywords that this module reads. */
interface Members {
  readonly properties?: Readonly<Record<string, TSchema>>;
  readonly patternProperties?: Readonly<Record<string, TSchema>>;
  readonly additionalProperties?: boolean;
  readonly items?: TSchema;
  readonly anyOf?: readonly TSchema[];
}

/** A member that the schema of its object does not allow. */
export interface UnknownMember {
  /** Where its object is. */
  readonly keys: readonly string[];
  readonly name: string;
  /** The members that its object may have. */
  readonly known: readonly string[];
  /** The schema of its object. */
  readonly owner: TSchema;
}

/**
 * The rules that a value breaks, in words; unknown members first, since what is missing is then most likely one of them.
 * typebox's own list ends early: enough unknown members, and it has nothing else. So it gets the value without them.
 * @param value refused by the schema already
 * @returns at least one
 */
export function schemaProblems(schema: TSchema, value: unknown): Problem[] {
  const unknown = [...unknownMembers(schema, value).take(UNKNOWN_MAX)].map(({ keys, name, known }) =>
    unknownName(keys.map(pointerTo).join(""), name, known),
  );
  const errors = Value.Errors(schema, knownOnly(schema, value));
  // An object without members may have had unknown ones.
  const further = errors.filter(({ keyword }) => keyword !== "minProperties" || unknown.length === 0);
  const problems = [...unknown, ...problemsOf(further)];
  return problems.length > 0 ? problems : [{ path: "", message: "the body is not valid" }];
}

/** Members that the schema does not allow, in the value's order. The search ends with the last one that is asked for. */
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

/** The value without members that the schema does not allow. */
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

/** Of a union, the branch for objects, if the value is one. */
function branchFor(schema: TSchema, value: unknown): Members & TSchema {
  const { anyOf } = schema as Members;
  const branch = isObject(value) ? anyOf?.find((each) => "properties" in each) : undefined;
  return branch ?? schema;
}

function memberOf({ properties = {}, patternProperties = {} }: Members, name: string): TSchema | undefined {
  if (Object.hasOwn(properties, name)) return properties[name];
  return Object.entries(patternProperties).find(([pattern]) => new RegExp(pattern, "u").test(name))?.[1];
}

const isClosed = ({ additionalProperties }: Members): boolean => additionalProperties === false;
