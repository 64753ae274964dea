import manifest from "../../package.json" with { type: "json" };
import { isObject } from "../domain/json.ts";

// Shared by the descriptions of the public port and of the management API, in OpenAPI 3.1.

interface Api {
  title: string;
  summary: string;
  description: string;
  contact: string;
  server: { url: string; description: string };
  /** How bearer tokens are called, begin and are explained. */
  token: readonly [name: string, format: string, description: string];
  tags: readonly { name: string; description: string }[];
  operations: readonly { method: string; path: string; operation: object }[];
  components: object;
}

export function openApiDocument({ contact, server, token, tags, operations, components, ...about }: Api) {
  const paths: Record<string, Record<string, object>> = {};
  for (const { method, path, operation } of operations) {
    paths[path] ??= {};
    paths[path][method.toLowerCase()] = operation;
  }
  const [name, bearerFormat, description] = token;
  return {
    openapi: "3.1.1",
    info: {
      title: about.title,
      version: manifest.version,
      summary: about.summary,
      description: about.description,
      contact: { name: contact },
      license: { name: "Proprietary", identifier: "LicenseRef-Proprietary" },
    },
    servers: [server],
    security: [{ [name]: [] }],
    tags,
    paths,
    components: {
      securitySchemes: { [name]: { type: "http", scheme: "bearer", bearerFormat, description } },
      ...components,
    },
  };
}

export const reference = (kind: "schemas" | "headers" | "parameters" | "responses", name: string) => ({
  $ref: `#/components/${kind}/${name}`,
});

/** The content of a request or an answer. @param more `example` or `examples` */
export const jsonContent = (schema: object, more: object, type = "application/json") => ({
  [type]: { schema, ...more },
});

/** Writes schemas, those with a name as references. @param keyword what stands in place of a keyword; undefined: the same */
export function schemaWriter(
  nameOf: (schema: object) => string | undefined,
  keyword: (name: string, value: unknown, schema: object) => object | undefined = () => undefined,
) {
  function described(value: unknown): unknown {
    if (Array.isArray(value)) return value.map(described);
    if (!isObject(value)) return value;
    const name = nameOf(value);
    return name === undefined ? members(value) : reference("schemas", name);
  }
  const members = (schema: object): Record<string, unknown> =>
    Object.assign(
      {},
      ...Object.entries(schema).map(
        ([name, value]) => keyword(name, value, schema) ?? { [name]: described(value) },
      ),
    );
  return { described, members };
}
