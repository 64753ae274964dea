import { type TRecord, type TSchema, Type } from "typebox";
import { jsonContent, openApiDocument, reference, schemaWriter } from "../../api/builder.ts";
import { SCOPES } from "../../domain/scopes.ts";
import * as accounts from "./account-schemas.ts";
import { BODY_EXAMPLES } from "./examples.ts";
import * as money from "./money-schemas.ts";
import { PROBLEMS, type ProblemCode, titleOf } from "./problems.ts";
import { type Route, TAGS } from "./route.ts";
import * as objects from "./schemas.ts";
import * as views from "./view-schemas.ts";
import * as webhooks from "./webhook-schemas.ts";

/** Schemas that the description names; all others stand where they are used. */
const SCHEMAS = Object.fromEntries(
  Object.entries({ ...accounts, ...objects, ...money, ...views, ...webhooks })
    .filter(([name, schema]) => (schema as { title?: string }).title === name)
    .sort(([one], [other]) => (one < other ? -1 : 1)),
) as Record<string, TSchema>;
const NAMES = new Set(Object.keys(SCHEMAS));

/** `docs/management.openapi.json`, which the API serves, too. */
export function adminOpenApi(routes: readonly Route[]): object {
  const operations = routes.map((route) => ({ ...route, operation: operationOf(route) }));
  const responses = Object.fromEntries(
    COMMON.map((status) => [responseName(status), problemResponse(status)]),
  );
  return openApiDocument({
    title: "Tollgate management API",
    summary: "Accounts, keys, credits, tasks and usage, for a company's own dashboard.",
    description: INTRODUCTION,
    contact: "The operator of this gateway",
    server: { url: "/manage/v1", description: "On the admin port of the gateway: put its address in front." },
    token: ["token", "tgm_…", TOKENS],
    tags: Object.entries(TAGS)
      .map(([name, description]) => ({ name, description }))
      .sort((one, other) => (one.name < other.name ? -1 : 1)),
    operations,
    components: {
      schemas: schemasIn({ operations: operations.map((one) => one.operation), responses }),
      responses,
    },
  });
}

function schemasIn(document: object): object {
  const used: Record<string, object> = {};
  let text = JSON.stringify(document);
  for (let found = -1; found !== Object.keys(used).length; ) {
    found = Object.keys(used).length;
    for (const [name, schema] of Object.entries(SCHEMAS)) {
      if (text.includes(`#/components/schemas/${name}"`)) used[name] = members(schema);
    }
    text += JSON.stringify(used);
  }
  return used;
}

const INTRODUCTION = `JSON both ways. Amounts are whole credits, times are ISO 8601 UTC. Errors are problems of RFC 9457; \`code\` is for programs. \`X-Request-Id\` names a call in the log and in the audit.

Lists come in pages: \`data\`, and \`next_cursor\` for \`cursor\`. Unknown parameters and fields are refused. A body has at most 64 KiB.

Most writes can be repeated: the same reference, Idempotency-Key or change has effect once. Three cannot: \`POST /tokens\` and \`POST /accounts\` without an \`account_id\` make another one, and a key that was rotated before is 409, which names the new key. \`confirmed: false\` in an answer means that it is done, but replicas of Redis do not have it yet: repeat it.`;

const TOKENS = `\`Authorization: Bearer tgm_…\`, or the gateway's \`ADMIN_TOKEN\`. Scopes: ${SCOPES.join(", ")}.`;

const COMMON = [400, 401, 403, 421, 429, 500, 503] as const;

function operationOf(route: Route): object {
  const { method, name, tag, summary, description, scope, answers, refusals, body } = route;
  const extra = [...refusals, ...(method === "GET" ? [] : [413, 415])];
  return {
    operationId: name,
    tags: [tag],
    summary,
    description: `${description}\n\nScope: ${scope === "any" ? "any token" : `\`${scope}\``}.`,
    parameters: parametersOf(route),
    ...(body && {
      requestBody: {
        required: (body.required ?? []).length > 0,
        content: jsonContent(plain(body), { example: BODY_EXAMPLES[name] ?? {} }),
      },
    }),
    responses: {
      ...Object.fromEntries(
        Object.entries(answers).map(([status, answer]) => [
          status,
          {
            description: answer.description,
            headers: headersOf(route),
            content: {
              ...jsonContent(plain(answer.schema), { example: exampleOf(answer.schema) }),
              ...(answer.csv && { "text/csv": { schema: { type: "string" } } }),
            },
          },
        ]),
      ),
      ...Object.fromEntries(extra.map((status) => [status, problemResponse(status)])),
      ...Object.fromEntries(COMMON.map((status) => [status, reference("responses", responseName(status))])),
    },
  };
}

function parametersOf({ path, query, needsIdempotencyKey, takesIfMatch }: Route): object[] {
  const inPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => ({
    name,
    in: "path",
    required: true,
    description: name === "month" ? "A UTC month such as 2026-10." : `Id of the ${name}.`,
    schema: { type: "string" },
  }));
  const required = new Set(query.required ?? []);
  const inQuery = Object.entries(query.properties).map(([name, schema]) => {
    const { description, ...rest } = plain(schema) as { description?: string };
    return {
      name,
      in: "query",
      required: required.has(name),
      ...(description && { description }),
      ...(Type.IsRecord(schema) ? memberParameters(name, schema) : { schema: rest }),
    };
  });
  const header = (name: string, isRequired: boolean, description: string) => ({
    name,
    in: "header",
    required: isRequired,
    description,
    schema: { type: "string" },
  });
  return [
    ...inPath,
    ...inQuery,
    ...(needsIdempotencyKey
      ? [header("Idempotency-Key", true, "Your own name of this call; 1 to 255 visible ASCII characters.")]
      : []),
    ...(takesIfMatch
      ? [
          header(
            "If-Match",
            false,
            "The `ETag` of the state that you have seen: changed meanwhile, it is 412.",
          ),
        ]
      : []),
  ];
}

/** An object whose members are the parameters: `metadata.plan=pro`. */
const memberParameters = (name: string, schema: TRecord): object => ({
  style: "form",
  explode: true,
  schema: {
    type: "object",
    patternProperties: {
      [Type.RecordPattern(schema).replace("^", `^${name}\\.`)]: plain(Type.RecordValue(schema)),
    },
    additionalProperties: false,
  },
});

const TEXT = { schema: { type: "string" } };

function headersOf({ takesIfMatch, path }: Route): object {
  const hasRevision = takesIfMatch || /\{(account|key|webhook)\}$/.test(path);
  return {
    "X-Request-Id": { description: "Names this call in log and audit.", ...TEXT },
    ...(hasRevision && { ETag: { description: "Its state, for `If-Match`.", ...TEXT } }),
  };
}

const codesOf = (status: number): ProblemCode[] =>
  (Object.keys(PROBLEMS) as ProblemCode[]).filter((code) => PROBLEMS[code].status === status);

const responseName = (status: number): string => `Problem${status}`;

function problemResponse(status: number): object {
  const codes = codesOf(status);
  return {
    description: codes.map((code) => `\`${code}\`: ${PROBLEMS[code].when}`).join("\n"),
    headers: { "X-Request-Id": { description: "Names this call in log and audit.", ...TEXT } },
    content: jsonContent(
      reference("schemas", "Problem"),
      { example: { ...(exampleOf(objects.Problem) as object), ...problemExample(status, codes[0]!) } },
      "application/problem+json",
    ),
  };
}

const problemExample = (status: number, code: ProblemCode): object =>
  status === 400
    ? {}
    : { title: titleOf(status), status, code, detail: PROBLEMS[code].when, errors: undefined };

/** A schema may have been made nullable, or had its fields added to: its title names it. */
const { described, members } = schemaWriter(({ title }: { title?: string }) =>
  NAMES.has(title ?? "") ? title : undefined,
);
const plain = (schema: TSchema): object => described(schema) as object;

/** An example of what a schema describes, of its fields' examples. A field that may be left out is in it if it has one. */
function exampleOf(schema: TSchema): unknown {
  const { examples, enum: words, properties, required, items, type, anyOf } = schema as DescribedSchema;
  if (examples) return examples[0];
  if (words) return words[0];
  if (anyOf) return exampleOf(anyOf[0]!);
  if (items) return [exampleOf(items)];
  if (properties) {
    const shown = Object.entries(properties).filter(
      ([name, field]) => required?.includes(name) || "examples" in field,
    );
    return Object.fromEntries(shown.map(([name, field]) => [name, exampleOf(field)]));
  }
  return [type].flat().includes("null") ? null : type === "boolean" ? false : type === "string" ? "" : 0;
}

interface DescribedSchema extends TSchema {
  examples?: unknown[];
  enum?: unknown[];
  properties?: Record<string, TSchema>;
  required?: string[];
  items?: TSchema;
  type?: string | string[];
  anyOf?: TSchema[];
}
