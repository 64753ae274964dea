import { PriceTableSchema } from "../src/config/price-lists.ts";
import { ConfigSchema, NEEDS_RESTART } from "../src/config/schema.ts";
import { isObject } from "../src/domain/json.ts";

// The configuration in JSON Schema, for editors; rules in code are not part of it.

const inJson = (title: string, schema: object): string =>
  `${JSON.stringify({ $schema: DRAFT, title, ...plain(schema, "") }, undefined, 2)}\n`;

export const configSchema = {
  file: "config/tollgate.schema.json",
  text: () => inJson("Tollgate's configuration", ConfigSchema),
};

export const priceSchema = {
  file: "config/prices.schema.json",
  text: () => inJson("Tollgate's prices", PriceTableSchema),
};

/** The YAML language server supports draft 07 completely. */
const DRAFT = "http://json-schema.org/draft-07/schema#";

/** Without annotations of this program. Settings with a default are optional. */
function plain(schema: object, setting: string): Record<string, unknown> {
  const copy: Record<string, unknown> = {};
  for (const [keyword, value] of Object.entries(schema)) {
    if (keyword.startsWith("x-") || keyword === "required") continue;
    copy[keyword] = NAMED.has(keyword) ? each(value, setting) : nested(value, setting);
  }
  const required = mustBeGiven(schema);
  if (required.length > 0) copy.required = required;
  const numbers = Object.keys(copy.properties ?? {}).filter((name) => /^\d+$/.test(name));
  // The language server refuses 10 without quotes for the property "10".
  if (numbers.length > 0) copy.patternProperties = { [`^(${numbers.join("|")})$`]: {} };
  if (isSection(schema)) copy.type = ["object", "null"];
  if (NEEDS_RESTART.has(setting)) copy.description = `${copy.description} A change needs a restart.`;
  if (isObject(copy.default) && Object.keys(copy.default).length === 0) delete copy.default;
  return copy;
}

const isSection = (schema: object & { type?: string }): boolean =>
  schema.type === "object" && Object.values<object>(ConfigSchema.properties).includes(schema);

const NAMED = new Set(["properties", "patternProperties"]);

function each(schemas: object, setting: string): Record<string, unknown> {
  const name = (key: string): string => (setting === "" ? key : `${setting}.${key}`);
  return Object.fromEntries(Object.entries(schemas).map(([key, schema]) => [key, plain(schema, name(key))]));
}

function nested(value: unknown, setting: string): unknown {
  if (Array.isArray(value)) return value.map((item) => nested(item, setting));
  return isObject(value) && "type" in value ? plain(value, `${setting}.`) : value;
}

function mustBeGiven(schema: object): string[] {
  const { required = [], properties = {} } = schema as {
    required?: string[];
    properties?: Record<string, object>;
  };
  return required.filter((name) => !("default" in (properties[name] ?? {})));
}
