import { PriceTableSchema } from "./prices.ts";
import { ConfigSchema, NEEDS_RESTART } from "./schema.ts";
import { isPlainObject } from "./validate.ts";

/** What editors and other programs know: draft 07, of which the YAML language server knows all. */
const DRAFT = "http://json-schema.org/draft-07/schema#";

/** JSON Schema of a config file, as editors use it; what it lets pass may still break a rule that is code. */
export function configJsonSchema(): object {
  return { $schema: DRAFT, title: "Tollgate's configuration", ...plain(ConfigSchema, "") };
}

/** JSON Schema of a price file. */
export function priceJsonSchema(): object {
  return { $schema: DRAFT, title: "Tollgate's prices", ...plain(PriceTableSchema, "") };
}

/**
 * A copy without what only this program reads. What has a default may be left out, and a setting says so itself when
 * it needs a restart.
 * @param setting dotted name of the setting that the schema describes, "" above them
 */
function plain(schema: object, setting: string): Record<string, unknown> {
  const copy: Record<string, unknown> = {};
  for (const [keyword, value] of Object.entries(schema)) {
    if (keyword.startsWith("x-") || keyword === "required") continue;
    copy[keyword] = NAMED.has(keyword) ? each(value, setting) : nested(value, setting);
  }
  const required = mustBeGiven(schema);
  if (required.length > 0) copy.required = required;
  const numbers = Object.keys(copy.properties ?? {}).filter((name) => /^\d+$/.test(name));
  // To the YAML language server, 10 without quotes is no property "10"; a pattern finds it.
  if (numbers.length > 0) copy.patternProperties = { [`^(${numbers.join("|")})$`]: {} };
  // All settings of a section may be commented out.
  if (isSection(schema)) copy.type = ["object", "null"];
  if (NEEDS_RESTART.has(setting)) copy.description = `${copy.description} A change needs a restart.`;
  // An editor would offer to write it.
  if (isPlainObject(copy.default) && Object.keys(copy.default).length === 0) delete copy.default;
  return copy;
}

const isSection = (schema: object & { type?: string }): boolean =>
  schema.type === "object" && Object.values<object>(ConfigSchema.properties).includes(schema);

/** Keywords whose value maps names to schemas. */
const NAMED = new Set(["properties", "patternProperties"]);

function each(schemas: object, setting: string): Record<string, unknown> {
  const name = (key: string): string => (setting === "" ? key : `${setting}.${key}`);
  return Object.fromEntries(Object.entries(schemas).map(([key, schema]) => [key, plain(schema, name(key))]));
}

function nested(value: unknown, setting: string): unknown {
  if (Array.isArray(value)) return value.map((item) => nested(item, setting));
  return isPlainObject(value) && "type" in value ? plain(value, `${setting}.`) : value;
}

function mustBeGiven(schema: object): string[] {
  const { required = [], properties = {} } = schema as {
    required?: string[];
    properties?: Record<string, object>;
  };
  return required.filter((name) => !("default" in (properties[name] ?? {})));
}
