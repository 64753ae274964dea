import { isObject } from "../domain/json.ts";
import { PriceTableSchema } from "./prices.ts";
import { ConfigSchema, NEEDS_RESTART } from "./schema.ts";

/** Draft 07, which the YAML language server supports completely. */
const DRAFT = "http://json-schema.org/draft-07/schema#";

/** JSON Schema of a config file for editors. A file that it accepts may still break a rule that is code. */
export function configJsonSchema(): object {
  return { $schema: DRAFT, title: "Tollgate's configuration", ...plain(ConfigSchema, "") };
}

/** JSON Schema of a price file. */
export function priceJsonSchema(): object {
  return { $schema: DRAFT, title: "Tollgate's prices", ...plain(PriceTableSchema, "") };
}

/**
 * A copy without the annotations that only this program reads. Settings with a default are not required, and the
 * description says which settings need a restart.
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
  // The YAML language server does not take 10 without quotes for the property "10"; a pattern matches it.
  if (numbers.length > 0) copy.patternProperties = { [`^(${numbers.join("|")})$`]: {} };
  // All settings of a section may be commented out.
  if (isSection(schema)) copy.type = ["object", "null"];
  if (NEEDS_RESTART.has(setting)) copy.description = `${copy.description} A change needs a restart.`;
  // An editor would suggest to write an empty map.
  if (isObject(copy.default) && Object.keys(copy.default).length === 0) delete copy.default;
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
  return isObject(value) && "type" in value ? plain(value, `${setting}.`) : value;
}

function mustBeGiven(schema: object): string[] {
  const { required = [], properties = {} } = schema as {
    required?: string[];
    properties?: Record<string, object>;
  };
  return required.filter((name) => !("default" in (properties[name] ?? {})));
}
