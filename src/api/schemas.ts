import type { Type } from "typebox";
import {
  CREDIT_ACCOUNT,
  ERROR,
  GENERATION,
  KEY_LIMITS,
  PROBLEM,
  successOf,
  TASK,
  TRANSACTION,
  UPLOADED_IMAGE,
  USAGE,
  USAGE_ROW,
} from "../domain/answers.ts";
import { GENERATION_ENDPOINTS, type GenerationEndpoint } from "../domain/endpoints.ts";
import { BODIES, SHOT } from "../domain/schemas.ts";
import { HTTPS_URL_PATTERN, WEB_URL_PATTERN } from "../domain/urls.ts";
import { schemaWriter } from "./builder.ts";

/** `gen2-pro/text-to-video` as an identifier: `gen2ProTextToVideo`. */
export const camelCase = (endpoint: GenerationEndpoint): string =>
  endpoint.replaceAll(/[/-](\w)/g, (_, letter: string) => letter.toUpperCase());

/** The name of an endpoint's body among the schemas: `Gen2ProTextToVideo`. */
export const bodyName = (endpoint: GenerationEndpoint): string =>
  camelCase(endpoint).replace(/^./, (letter) => letter.toUpperCase());

/** Schemas that have a name of their own; wherever one stands within another, a reference takes its place. */
const NAMED: readonly (readonly [name: string, schema: Type.TSchema])[] = [
  ...GENERATION_ENDPOINTS.map((endpoint) => [bodyName(endpoint), BODIES[endpoint]] as const),
  ["Shot", SHOT],
  ["Generation", GENERATION],
  ["GenerationAnswer", successOf(GENERATION)],
  ["Task", TASK],
  ["TaskAnswer", successOf(TASK)],
  ["UploadedImage", UPLOADED_IMAGE],
  ["UploadAnswer", successOf(UPLOADED_IMAGE)],
  ["CreditAccount", CREDIT_ACCOUNT],
  ["CreditsAnswer", successOf(CREDIT_ACCOUNT)],
  ["Usage", USAGE],
  ["UsageRow", USAGE_ROW],
  ["UsageAnswer", successOf(USAGE)],
  ["KeyLimits", KEY_LIMITS],
  ["Transaction", TRANSACTION],
  ["Error", ERROR],
  ["Problem", PROBLEM],
];
const NAMES = new Map<unknown, string>(NAMED.map(([name, schema]) => [schema, name]));

/** The gateway's own patterns. `format: uri` is another rule (RFC 3986), and clients that validate would refuse other addresses. */
const FORMATS: Readonly<Record<string, object>> = {
  "web-url": { pattern: WEB_URL_PATTERN },
  "https-url": { pattern: HTTPS_URL_PATTERN },
};

export const componentSchemas = (): Record<string, unknown> =>
  Object.fromEntries(
    NAMED.map(([name, schema]) => [
      name,
      BODY_SCHEMAS.has(schema) ? withNulls(members(schema)) : members(schema),
    ]),
  );

const BODY_SCHEMAS: ReadonlySet<unknown> = new Set(Object.values(BODIES));

/** The schema of a body, whose optional members may be null: the gateway takes that for absent. */
function withNulls(schema: Record<string, unknown>): Record<string, unknown> {
  const { required, properties } = schema as { required: string[]; properties: Record<string, object> };
  const nullable = Object.entries(properties).map(([name, property]) => {
    if (required.includes(name)) return [name, property];
    const { type, enum: values, ...rest } = property as { type: string; enum?: unknown[] };
    return [name, { type: [type, "null"], ...(values && { enum: [...values, null] }), ...rest }];
  });
  return { ...schema, properties: Object.fromEntries(nullable) };
}

/** Defaults are put into words: generators of types take a parameter with a `default` for one that is always there. */
const { members } = schemaWriter(
  (schema) => NAMES.get(schema),
  (name, value, schema) => {
    if (name === "format") return FORMATS[String(value)];
    if (name === "enum" && Array.isArray(value)) return { type: typeOf(value), enum: value };
    if (name === "default") return {};
    if (name !== "description" || !("default" in schema)) return undefined;
    return { description: `${value} Left out, it is \`${schema.default}\`.` };
  },
);

/** typebox leaves the type of an enumeration to its values; generators of clients want it said. */
const typeOf = (values: readonly unknown[]): string =>
  values.every((value) => Number.isInteger(value)) ? "integer" : "string";
