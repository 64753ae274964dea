import { Compile } from "typebox/compile";
import type { GenerationEndpoint } from "./endpoints.ts";
import type { Problem } from "./errors.ts";
import { isObject } from "./json.ts";
import type { PricedBody } from "./prices.ts";
import { nameOf, problemsOf, unknownName } from "./problems.ts";
import { BODIES } from "./schemas.ts";
import { isOnSourceHost } from "./urls.ts";

/** Storyboard tolerance, inclusive. In floating point 10 - 9.95 is a little more than 0.05. Spec 4.6. */
const TOLERANCE_SECONDS = 0.05;
const FLOAT_NOISE = 1e-9;
/** Unknown parameters that are named in one answer. */
const UNKNOWN_MAX = 32;

interface Body extends PricedBody {
  videoUrl?: string;
  shots?: { Scene: string; duration: number }[];
}

interface ObjectSchema {
  properties: Record<string, { default?: unknown; items?: ObjectSchema }>;
}

/** A body that passed: `body` for pricing, `text` is exactly what goes upstream, defaults written out. */
export type Validation = { ok: true; body: PricedBody; text: string } | { ok: false; problems: Problem[] };

const validators = Object.fromEntries(
  Object.entries(BODIES).map(([endpoint, schema]) => [
    endpoint,
    { validator: Compile(schema), schema: schema as unknown as ObjectSchema },
  ]),
);

/**
 * Validates the parsed body of a generation request and writes it out anew, in the schema's order, so that what is
 * priced is what is sent. Spec 4.2 to 4.7.
 * @param sourceHost origin that watermark removal accepts, from the config
 */
export function validateGeneration(
  endpoint: GenerationEndpoint,
  value: unknown,
  sourceHost: string,
): Validation {
  const { validator, schema } = validators[endpoint]!;
  const wellTyped = validator.Check(value);
  const problems = wellTyped
    ? []
    : [...unknownNames(schema, value, ""), ...problemsOf(validator.Errors(knownOnly(schema, value)))];
  if (isObject(value)) problems.push(...furtherRules(endpoint, value, sourceHost));
  if (problems.length > 0 || !wellTyped) return { ok: false, problems };
  const body = inOrder(schema, value as Record<string, unknown>);
  const text = JSON.stringify(body);
  // JSON.stringify writes a surrogate as an escape only when it stands alone.
  const broken = /\\ud[89a-f]/i.test(text) ? illFormed(value, "") : [];
  if (broken.length > 0) return { ok: false, problems: broken };
  return { ok: true, body: body as PricedBody, text };
}

/** Rules that a schema cannot say. Checks only fields of the right type; others are reported already. */
function furtherRules(
  endpoint: GenerationEndpoint,
  value: Body & Record<string, unknown>,
  sourceHost: string,
): Problem[] {
  const problems: Problem[] = [];
  const { videoUrl, shots, nFrames } = value;
  const onSourceHost = typeof videoUrl !== "string" || isOnSourceHost(videoUrl, sourceHost);
  if (endpoint === "gen2/watermark-remove" && !onSourceHost) {
    problems.push({ path: "/videoUrl", message: `videoUrl must begin with ${sourceHost}/` });
  }
  const addsUp = endpoint === "gen2-pro/storyboard" && Array.isArray(shots) && shots.length > 0;
  if (addsUp && typeof nFrames === "string" && /^\d+$/.test(nFrames)) {
    const seconds = shots.reduce((sum, shot) => sum + Number(shot?.duration), 0);
    if (Math.abs(seconds - Number(nFrames)) > TOLERANCE_SECONDS + FLOAT_NOISE) {
      const sum = Number(seconds.toFixed(6));
      problems.push({
        path: "/shots",
        message: `shots durations add up to ${sum}, but must add up to nFrames (${nFrames}) within 0.05`,
      });
    }
  }
  return problems;
}

/** The object with exactly the schema's properties, in its order, absent ones replaced by their defaults. */
function inOrder(schema: ObjectSchema, value: Record<string, unknown>): Record<string, unknown> {
  const ordered: Record<string, unknown> = {};
  for (const name in schema.properties) {
    const property = schema.properties[name]!;
    const given = value[name] === undefined ? property.default : value[name];
    if (given === undefined) continue;
    ordered[name] =
      property.items?.properties && Array.isArray(given)
        ? given.map((item) => inOrder(property.items!, item))
        : given;
  }
  return ordered;
}

/** Parameters that the schema does not have, each with a suggestion; at most so many that an answer stays small. */
function unknownNames(schema: ObjectSchema, value: unknown, path: string): Problem[] {
  if (!isObject(value)) return [];
  const problems: Problem[] = [];
  for (const [name, given] of Object.entries(value)) {
    if (problems.length >= UNKNOWN_MAX) break;
    const property = Object.hasOwn(schema.properties, name) ? schema.properties[name] : undefined;
    if (!property) problems.push(unknownName(path, name, Object.keys(schema.properties)));
    const { items } = property ?? {};
    if (!items?.properties || !Array.isArray(given)) continue;
    const inItems = given.flatMap((item, at) => unknownNames(items, item, `${path}/${name}/${at}`));
    problems.push(...inItems.slice(0, UNKNOWN_MAX));
  }
  return problems;
}

/** The value without parameters that the schema does not have; those are reported apart. */
function knownOnly(schema: ObjectSchema, value: unknown): unknown {
  if (!isObject(value)) return value;
  const known: Record<string, unknown> = {};
  for (const name in schema.properties) {
    if (!Object.hasOwn(value, name)) continue;
    const { items } = schema.properties[name]!;
    const given = value[name];
    known[name] =
      items?.properties && Array.isArray(given) ? given.map((item) => knownOnly(items, item)) : given;
  }
  return known;
}

function illFormed(value: unknown, path: string): Problem[] {
  if (typeof value === "string") {
    return value.isWellFormed() ? [] : [{ path, message: `${nameOf(path)} has half a surrogate pair` }];
  }
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([name, item]) => illFormed(item, `${path}/${name}`));
}
