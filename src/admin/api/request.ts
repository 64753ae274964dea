import type { IncomingMessage } from "node:http";
import { type Static, type TObject, Type } from "typebox";
import { Value } from "typebox/value";
import type { Problem as FieldProblem } from "../../domain/errors.ts";
import { isObject, isUnicode, parseJsonBytes } from "../../domain/json.ts";
import { calendarProblem, isDay, momentMs } from "../../domain/moments.ts";
import { DETAILS_MAX, problemsOf, shown } from "../../domain/problems.ts";
import { schemaProblems } from "../../domain/schema-problems.ts";
import { nearest } from "../../domain/suggest.ts";
import { readBody } from "../reply.ts";
import { Problem } from "./problems.ts";

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
  throw invalid([
    ...[...unknown].slice(0, DETAILS_MAX).map((name) => unknownQuery(name, known)),
    ...[...repeated].map((name) => ({ path: `?${name}`, message: `${name} must be given once` })),
    ...problemsOf(Value.Errors(schema, values)).map(({ path, message }) => ({
      path: `?${path.slice(1).replace("/", ".")}`,
      message: inCalendar(message, values[path.slice(1)]),
    })),
  ]);
}

/** `metadata.plan` is the member `plan` of `metadata`. */
function splitName(name: string): [name: string, member: string | undefined] {
  const dot = name.indexOf(".");
  return dot === -1 ? [name, undefined] : [name.slice(0, dot), name.slice(dot + 1)];
}

/** Of a date, what the calendar lacks. */
function inCalendar(message: string, value: unknown): string {
  const problem = typeof value === "string" ? calendarProblem(value) : undefined;
  return problem === undefined ? message : `${message}; ${problem}`;
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
  if (encoding !== undefined && encoding !== "identity") {
    throw new Problem("unsupported_media_type", "Content-Encoding is not supported");
  }
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
  if (!Value.Check(schema, value)) throw invalid(schemaProblems(schema, value));
  const unrounded: unknown = JSON.parse(String(bytes) || "{}", fractional);
  if (!Value.Check(schema, unrounded)) throw invalid(schemaProblems(schema, unrounded));
  return value;
}

/** For JSON.parse: a number that it would round to a whole one, such as 9007199254740990.6, stays a fraction. */
function fractional(_name: string, value: unknown, { source = "" }: { source?: string }): unknown {
  if (typeof value !== "number" || !Number.isInteger(value)) return value;
  const [, whole = "", fraction = "", exponent = "0"] = /^-?(\d+)(?:\.(\d+))?(?:e(.*))?$/i.exec(source) ?? [];
  const digits = (whole + fraction).replace(/0+$/, "");
  return digits.length <= whole.length + Number(exponent) || /^0*$/.test(digits) ? value : 0.5;
}

const invalid = (problems: readonly FieldProblem[]): Problem =>
  new Problem("invalid", problems[0]?.message ?? "", { errors: problems.slice(0, DETAILS_MAX) });

const DAY_MS = 86_400_000;

/** Unix ms; of a day `to` it is the end. @throws Problem for what is neither a day nor a time */
export const periodOf = (query: { from?: string; to?: string }) => ({
  fromMs: momentOf("from", query.from, "start"),
  toMs: momentOf("to", query.to, "end"),
});

/** @param edge of a day that is given without a time: `end` is the first moment of the next one */
function momentOf(name: string, text: string | undefined, edge: "start" | "end"): number | undefined {
  if (text === undefined) return undefined;
  const ms = momentMs(text);
  if (ms === undefined) {
    const rule = `${name} must be a day such as 2026-10-31, or a time with its zone such as 2026-10-31T12:00:00Z`;
    const problem = calendarProblem(text);
    const message = problem === undefined ? rule : `${rule}; ${problem}`;
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
