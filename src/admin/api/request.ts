import type { IncomingMessage } from "node:http";
import { type Static, type TObject, Type } from "typebox";
import { Value } from "typebox/value";
import type { Problem as FieldProblem } from "../../domain/errors.ts";
import { isObject, isUnicode, parseJsonBytes } from "../../domain/json.ts";
import { isIdentity } from "../../domain/limits.ts";
import { DAY_MS, isDay, momentMs, TIME_RULE, timeProblem } from "../../domain/moments.ts";
import { MULTIPLIER_RULE } from "../../domain/money.ts";
import { DETAILS_MAX, nearest, problemsOf, shown } from "../../domain/problems.ts";
import { schemaProblems } from "../../domain/schema-problems.ts";
import { requireOrder } from "../../operations/access/operator-values.ts";
import { RETRY_AFTER_RULE } from "../../operations/store/maintenance.ts";
import { readBody } from "../reply.ts";
import { fieldOf, invalidCode, isTime, Problem } from "./problems.ts";

const BODY_BYTES_MAX = 65_536;
/** The longest one that is valid has a cursor of 6,000 characters, or a search of 200, which take 12 each in a URL. */
const QUERY_CHARS_MAX = 10_000;
const PARAMETERS_MAX = 50;
const JSON_TYPE = /^application\/json *(;|$)/i;

/** Whole numbers become numbers; `metadata.plan=pro` becomes `{metadata: {plan: "pro"}}`. @throws Problem that names each wrong parameter */
export function readQuery<Schema extends TObject>(schema: Schema, query: string): Static<Schema> {
  const values: Record<string, unknown> = {};
  const unknown = new Set<string>();
  const repeated = new Set<string>();
  const seen = new Set<string>();
  const members: { group: string; member: string; text: string }[] = [];
  for (const [name, text] of parametersOf(query)) {
    const [group, member] = splitName(name);
    const property = schema.properties[group];
    if (!Object.hasOwn(schema.properties, group) || Type.IsRecord(property) !== (member !== undefined))
      unknown.add(name);
    else if (seen.has(name)) repeated.add(name);
    else if (member !== undefined) members.push({ group, member, text });
    else values[name] = Type.IsInteger(property) && /^-?\d{1,15}$/.test(text) ? Number(text) : text;
    seen.add(name);
  }
  for (const [group, given] of Map.groupBy(members, (one) => one.group))
    values[group] = Object.fromEntries(given.map(({ member, text }) => [member, text]));
  if (unknown.size + repeated.size === 0 && Value.Check(schema, values)) return values;
  const known = Object.entries(schema.properties).map(([name, property]) =>
    Type.IsRecord(property) ? `${name}.<name>` : name,
  );
  const problems = [
    ...[...unknown].slice(0, DETAILS_MAX).map((name) => unknownQuery(name, known)),
    ...[...repeated].map((name) => ({ path: `?${name}`, message: `${name} must be given once` })),
    ...explained(schema, problemsOf(Value.Errors(schema, values)), values).map(({ path, message }) => ({
      path: `?${path.slice(1).replace("/", ".")}`,
      message,
    })),
  ];
  throw invalid(problems, schema);
}

/** Rules that a schema says in parts. */
const RULES: Readonly<Record<string, string>> = {
  price_multiplier: MULTIPLIER_RULE,
  retry_after: RETRY_AFTER_RULE,
};

/** Broken rules of known fields in whole; of a time what it lacks. */
const explained = (
  { properties }: TObject,
  problems: readonly FieldProblem[],
  values: Readonly<Record<string, unknown>>,
): FieldProblem[] =>
  problems.map(({ path, message }) => {
    const field = fieldOf(path);
    const value = values[field];
    if (value === undefined || !Object.hasOwn(properties, field)) return { path, message };
    const rule = RULES[field] ?? message;
    return { path, message: isTime(field) ? withLack(rule, value) : rule };
  });

function withLack(rule: string, time: unknown): string {
  const lack = typeof time === "string" ? timeProblem(time) : undefined;
  return lack === undefined ? rule : `${rule}; ${lack}`;
}

/** `metadata.plan` is the member `plan` of `metadata`. */
function splitName(name: string): [name: string, member: string | undefined] {
  const dot = name.indexOf(".");
  return dot === -1 ? [name, undefined] : [name.slice(0, dot), name.slice(dot + 1)];
}

function parametersOf(query: string): URLSearchParams {
  if (query.length > QUERY_CHARS_MAX) {
    throw invalid([{ path: "?", message: `the query must not exceed ${QUERY_CHARS_MAX} characters` }]);
  }
  const parameters = new URLSearchParams(query);
  if (parameters.size > PARAMETERS_MAX) {
    throw invalid([{ path: "?", message: `the query must not have more than ${PARAMETERS_MAX} parameters` }]);
  }
  return parameters;
}

function unknownQuery(name: string, known: readonly string[]): FieldProblem {
  const meant = nearest(name, known);
  const hint = meant === undefined ? "" : `; did you mean ${meant}?`;
  return { path: `?${shown(name)}`, message: `${shown(name)} is not a known parameter${hint}` };
}

/** At most 64 KiB of JSON; an empty body counts as `{}`. @throws Problem */
export async function readJsonBody<Schema extends TObject>(
  schema: Schema,
  req: IncomingMessage,
): Promise<Static<Schema>> {
  const { "content-type": type, "content-encoding": encoding } = req.headers;
  const bytes = await readBody(req, BODY_BYTES_MAX).catch(() => {
    throw invalid([{ path: "", message: "the connection ended before the body was complete" }]);
  });
  if (bytes === undefined) throw new Problem("too_large", `the body must not exceed ${BODY_BYTES_MAX} bytes`);
  if (!isIdentity(encoding)) throw new Problem("unsupported_media_type", "Content-Encoding is not supported");
  if (bytes.length > 0 && !JSON_TYPE.test(type ?? "")) {
    throw new Problem("unsupported_media_type", "the body must be application/json");
  }
  const parsed = bytes.length === 0 ? ({ ok: true, value: {} } as const) : parseJsonBytes(bytes);
  if (!parsed.ok) throw invalid([{ path: "", message: parsed.message }]);
  const { value } = parsed;
  if (!isObject(value)) throw invalid([{ path: "", message: "the body must be a JSON object" }]);
  if (!isUnicode(value)) {
    throw invalid([{ path: "", message: "the body has half a surrogate pair, which is no Unicode text" }]);
  }
  requireValid(schema, value);
  requireValid(schema, unrounded(String(bytes) || "{}"), value);
  return value;
}

/** @param given what the problems quote @throws Problem that names each broken rule */
export function requireValid<Schema extends TObject>(
  schema: Schema,
  value: unknown,
  given = value as Record<string, unknown>,
): asserts value is Static<Schema> {
  if (!Value.Check(schema, value))
    throw invalid(explained(schema, schemaProblems(schema, value), given), schema);
}

export const unrounded = (json: string): unknown => JSON.parse(json, fractional);

/** For JSON.parse: a number that it would round to a whole one, such as 9007199254740990.6, stays a fraction. */
function fractional(_name: string, value: unknown, { source = "" }: { source?: string }): unknown {
  if (typeof value !== "number" || !Number.isInteger(value)) return value;
  const [, whole = "", fraction = "", exponent = "0"] = /^-?(\d+)(?:\.(\d+))?(?:e(.*))?$/i.exec(source) ?? [];
  // To the last one that counts. A pattern for the zeros behind it would look from each zero on.
  const digits = /^\d*[1-9]/.exec(whole + fraction)?.[0] ?? "";
  return digits.length <= whole.length + Number(exponent) || digits === "" ? value : 0.5;
}

/** @param schema undefined if all fields are known */
function invalid(problems: readonly FieldProblem[], schema?: TObject): Problem {
  const isKnown = problems.every(({ path }) => !schema || Object.hasOwn(schema.properties, fieldOf(path)));
  const errors = problems.slice(0, DETAILS_MAX);
  return new Problem(isKnown ? invalidCode(errors) : "invalid", problems[0]?.message ?? "", { errors });
}

/** Unix ms; of a day `to` it is the end. @throws Problem for neither a day nor a time, and for an end before the beginning */
export function periodOf({ from, to }: { from?: string; to?: string }) {
  const fromMs = momentOf("from", from, "start");
  const toMs = momentOf("to", to, "end");
  if (from !== undefined && to !== undefined && isDay(from) && isDay(to)) requireOrder(from, to);
  else requireOrder(fromMs, toMs);
  return { fromMs, toMs };
}

/** @param edge of a day that is given without a time: `end` is the first moment of the next one */
function momentOf(name: string, text: string | undefined, edge: "start" | "end"): number | undefined {
  if (text === undefined) return undefined;
  const ms = momentMs(text);
  if (ms === undefined) {
    const message = withLack(`${name} must be a day such as 2026-10-31, or ${TIME_RULE}`, text);
    throw invalid([{ path: `?${name}`, message }]);
  }
  return edge === "end" && isDay(text) ? ms + DAY_MS : ms;
}

/** No object has it: the entity tag is none of ours, so it matches nothing. */
const NEVER = -1;
const TAGS_MAX = 20;

/** Entity tags with commas, RFC 9110 section 5.6.1: empty elements are legal. */
const LIST = /^(?:[\s,]*(?:W\/)?"[^"]*"\s*(?=,|$))+[\s,]*$/;
const TAG = /(?:W\/)?"[^"]*"/g;
/** Also as a proxy that compresses sends it on: weak, or with the coding's name. A revision names the whole object, so weak is as good. */
const OWN_TAG = /^(?:W\/)?"(\d{1,15})(?:[-;:]{1,2}(?:gzip|br|deflate|zstd|df))?"$/;

export const etagOf = (revision: number): string => `"${revision}"`;

/** One of these revisions the object must have; undefined: any. RFC 9110 section 13.1.1. @throws Problem for what is no list of entity tags */
export function revisionsOf(ifMatch: string | undefined): number[] | undefined {
  if (ifMatch === undefined || ifMatch.trim() === "*") return undefined;
  const tags = LIST.test(ifMatch) ? (ifMatch.match(TAG) ?? []) : [];
  if (tags.length === 0 || tags.length > TAGS_MAX) {
    const message = `If-Match must have 1 to ${TAGS_MAX} entity tags as ETag headers had them, with their quotes`;
    throw new Problem("invalid", message, { errors: [{ path: "If-Match", message }] });
  }
  return tags.map((tag) => Number(OWN_TAG.exec(tag)?.[1] ?? NEVER));
}
