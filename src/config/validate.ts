import type { Static, TSchema } from "typebox";
import type { TLocalizedValidationError } from "typebox/error";
import { Settings } from "typebox/system";
import { Pointer, Value } from "typebox/value";
import { isObject } from "../domain/json.ts";
import { nearest } from "../domain/problems.ts";
import { knownOnly, type UnknownMember, unknownMembers } from "../domain/schema-problems.ts";

const PROBLEMS_MAX = 100;
const UNKNOWN_MAX = PROBLEMS_MAX / 2;
/** typebox stops at 8 errors by default; one broken rule of a union has several. */
const ERRORS_MAX = 1000;

export interface BrokenRule {
  readonly keys: readonly string[];
  readonly message: string;
  readonly code?: string;
}

/** `value` is undefined if there are problems. */
export function validate<S extends TSchema>(
  schema: S,
  data: unknown,
): { value: Static<S> | undefined; problems: BrokenRule[] } {
  if (Value.Check(schema, data)) return { value: data, problems: [] };
  // Found separately, because enough of them fill typebox's list.
  const unknown = [...unknownMembers(schema, data).take(UNKNOWN_MAX + 1)].map(unknownKey);
  const known = knownOnly(schema, data);
  const errors = withoutOtherBranches(schema, known, allErrors(schema, known));
  const problems = [...unknown.slice(0, UNKNOWN_MAX), ...errors.flatMap(explain)];
  if (problems.length === 0) return { value: undefined, problems: [UNEXPLAINED] };
  const isLonger = unknown.length > UNKNOWN_MAX || problems.length > PROBLEMS_MAX;
  return { value: undefined, problems: [...problems.slice(0, PROBLEMS_MAX), ...(isLonger ? [MORE] : [])] };

  function explain(error: TLocalizedValidationError): BrokenRule[] {
    const node = Pointer.Get(schema, error.schemaPath.slice(1)) as Annotated;
    const keys = Pointer.Indices(error.instancePath);
    return explained(error, node, keys, Pointer.Get(known, error.instancePath));
  }
}

/** A refused value must have a problem: callers take none for valid. */
const UNEXPLAINED: BrokenRule = { keys: [], message: "is not valid" };
const MORE: BrokenRule = { keys: [], message: "has more problems than are listed here" };

interface Annotated {
  readonly "x-expects"?: string;
  readonly "x-keys"?: string;
}

function allErrors(schema: TSchema, data: unknown): TLocalizedValidationError[] {
  const { maxErrors } = Settings.Get();
  Settings.Set({ maxErrors: ERRORS_MAX });
  try {
    return Value.Errors(schema, data);
  } finally {
    Settings.Set({ maxErrors });
  }
}

/** Explains one branch of a union: the map's for a map, the list's for a list, else the plain value's. */
function withoutOtherBranches(
  schema: TSchema,
  data: unknown,
  errors: TLocalizedValidationError[],
): TLocalizedValidationError[] {
  const foreign: string[] = [];
  for (const error of errors) {
    if (error.keyword !== "anyOf") continue;
    const { anyOf } = Pointer.Get(schema, error.schemaPath.slice(1)) as { anyOf: { type?: string }[] };
    const value = Pointer.Get(data, error.instancePath);
    const kind = isObject(value) ? "object" : Array.isArray(value) ? "array" : "";
    const isMeant = anyOf.some(({ type }) => type === kind)
      ? (type = "") => type === kind
      : (type = "") => type !== "object" && type !== "array";
    for (const [index, { type }] of anyOf.entries()) {
      if (!isMeant(type)) foreign.push(`${error.schemaPath}/anyOf/${index}`);
    }
  }
  return errors.filter(
    (error) => !foreign.some((path) => error.schemaPath === path || error.schemaPath.startsWith(`${path}/`)),
  );
}

function explained(
  error: TLocalizedValidationError,
  node: Annotated,
  keys: readonly string[],
  value: unknown,
): BrokenRule[] {
  switch (error.keyword) {
    case "anyOf":
    case "const": // The other branch of the union says what is allowed.
      return [];
    case "required":
      return error.params.requiredProperties.map((key) => ({ keys: [...keys, key], message: "is missing" }));
    case "type":
    case "pattern":
      if ("const" in node) return [];
      return [
        {
          keys,
          message: `must be ${node["x-expects"] ?? typeName(error)}, ${notThis(value)}${unitHint(node, value)}`,
        },
      ];
    case "enum":
      return [
        { keys, message: `must be one of ${error.params.allowedValues.join(", ")}, ${notThis(value)}` },
      ];
    case "minimum":
      return [{ keys, message: `must be at least ${error.params.limit}, ${notThis(value)}` }];
    case "maximum":
      return [{ keys, message: `must be at most ${error.params.limit}, ${notThis(value)}` }];
    default:
      return [{ keys, message: error.message }];
  }
}

const TYPE_NAMES: Readonly<Record<string, string>> = {
  integer: "a whole number",
  string: "a text",
  boolean: "true or false",
  array: "a list",
  object: "a map of settings",
};

function typeName(error: TLocalizedValidationError): string {
  const type = error.keyword === "type" ? String(error.params.type) : "";
  return TYPE_NAMES[type] ?? type;
}

const SECRET_NAME = /api_?key|passw|secret|token|credential/i;

function unknownKey({ keys, name, known, owner }: UnknownMember): BrokenRule {
  return { keys: [...keys, name], message: whyUnknown(keys, name, known, owner) };
}

function whyUnknown(
  keys: readonly string[],
  key: string,
  known: readonly string[],
  owner: Annotated,
): string {
  if (SECRET_NAME.test(key)) return `is refused here: ${secretPlace(keys, key)}`;
  if (owner["x-keys"] !== undefined) return owner["x-keys"];
  const meant = nearest(key, known);
  return meant === undefined
    ? `is unknown; known here: ${known.join(", ")}`
    : `is unknown; did you mean ${meant}?`;
}

function secretPlace(keys: readonly string[], key: string): string {
  if (keys[0] === "store") return "put the password into REDIS_URL in the environment";
  const variable = keys[0] === "admin" || /^admin/i.test(key) ? "ADMIN_TOKEN" : "UPSTREAM_API_KEY";
  return `set ${variable} in the environment; the file holds no secrets`;
}

function unitHint(node: Annotated, value: unknown): string {
  const isBare = node["x-expects"]?.startsWith("a duration") === true && /^\d+$/.test(String(value));
  return isBare ? ` (write ${value}ms or ${value}s)` : "";
}

/** Settings that can be a secret are not checked by type or pattern. */
function notThis(value: unknown): string {
  if (value === null) return "but it has no value; leave the line out to use the default";
  if (Array.isArray(value)) return "not a list";
  if (isObject(value)) return "not a map";
  const shown = typeof value === "string" ? JSON.stringify(value.slice(0, 60)) : String(value);
  return `not ${shown}`;
}
