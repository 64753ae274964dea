import { jsonContent, openApiDocument, reference } from "./builder.ts";
import { type ErrorCase, errorCases, KINDS, type Kind } from "./errors.ts";
import { COMMON_HEADERS, FURTHER_HEADERS, headersOf } from "./headers.ts";
import { INTRODUCTION, TAGS } from "./introduction.ts";
import { OPERATIONS, type Operation, PARAMETERS } from "./operations.ts";
import { componentSchemas } from "./schemas.ts";

/** `docs/openapi.json`; the admin port serves it. */
export function openApiText(): string {
  return `${JSON.stringify(openApi(), null, 2)}\n`;
}

function openApi() {
  const { named, references } = errorResponses();
  return openApiDocument({
    title: "Video generation through Tollgate",
    summary: "Asynchronous video generation with API keys, limits and credits.",
    description: INTRODUCTION,
    contact: "The operator of this gateway, who gave you the key",
    server: {
      url: "/",
      description: "The public port of the gateway: put its address, as you were given it, in front.",
    },
    token: [
      "apiKey",
      "sk_…",
      "`Authorization: Bearer sk_…`, on every request. Keys begin with `sk_` and are shown once, when they are made. " +
        "Send them from servers only.",
    ],
    tags: TAGS,
    operations: OPERATIONS.map((one) => ({ ...one, operation: described(one, references[one.kind]) })),
    components: {
      parameters: PARAMETERS,
      headers: { ...COMMON_HEADERS, ...FURTHER_HEADERS },
      schemas: componentSchemas(),
      responses: named,
    },
  });
}

function described(operation: Operation, errors: Record<string, unknown>) {
  const { schema, description, examples } = operation.answer;
  return {
    ...operation.fields,
    responses: {
      "200": {
        description,
        headers: headersOf(operation.headers),
        content: jsonContent(reference("schemas", schema), { examples }),
        ...(operation.links && { links: operation.links }),
      },
      ...errors,
    },
  };
}

/** Titles of error responses, which also make their names. */
const TITLES: Readonly<Record<string, string>> = {
  "400": "Bad request",
  "401": "Unauthorized",
  "402": "Payment required",
  "403": "Forbidden",
  "404": "Not found",
  "405": "Method not allowed",
  "408": "Request timeout",
  "409": "Conflict",
  "413": "Content too large",
  "415": "Unsupported media type",
  "417": "Expectation failed",
  "422": "Unprocessable content",
  "426": "Upgrade required",
  "429": "Too many requests",
  "431": "Request header fields too large",
  default: "Refused by the generator",
  "500": "Internal error",
  "502": "Bad gateway",
  "503": "Service unavailable",
  "504": "Gateway timeout",
  "505": "HTTP version not supported",
};

/** Decided with the store at hand, or before it is asked for; never while the gateway works without it. */
const NEVER_DEGRADED = new Set(["401", "402", "403", "417", "426", "431", "503", "505"]);

/** The error responses, each once: under its title where it is shared or alone, else under the kind's name too; and each kind's references. */
function errorResponses() {
  const named: Record<string, unknown> = {};
  const references = {} as Record<Kind, Record<string, unknown>>;
  const all = KINDS.map((kind) => ({ kind, responses: responsesOf(kind) }));
  for (const { kind, responses } of all) {
    references[kind] = {};
    for (const [status, response] of responses) {
      const text = JSON.stringify(response);
      const alike = all.filter((other) => JSON.stringify(other.responses.get(status)) === text);
      const alone = all.filter((other) => other.responses.has(status)).length === 1;
      const title = pascalCase(TITLES[status] ?? status);
      const taken = title in named && JSON.stringify(named[title]) !== text;
      const name = (alike.length > 1 || alone) && !taken ? title : pascalCase(kind) + title;
      named[name] = response;
      references[kind][status] = reference("responses", name);
    }
  }
  return { named, references };
}

const pascalCase = (words: string): string =>
  words.replaceAll(/(?:^|\s)(\w)/g, (_, letter: string) => letter.toUpperCase());

/** Statuses of the upstream that are never passed on: they would blame the gateway, or say that it is limiting. */
const NEVER_UPSTREAMS = new Set(["401", "402", "403", "404", "405", "429"]);

/** Answers of one kind of operation beside 200, by status. */
function responsesOf(kind: Kind): Map<string, unknown> {
  const byStatus = Map.groupBy(errorCases(kind), ({ response }) => response);
  return new Map([...byStatus].sort().map(([status, cases]) => [status, responseOf(status, cases)]));
}

function responseOf(status: string, cases: readonly ErrorCase[]) {
  const further = cases.flatMap(({ headers }) => headers);
  if (!NEVER_DEGRADED.has(status)) further.push("X-Gateway-Degraded");
  // A status of the upstream's own comes with its definite refusal.
  if (/^(?:4|default)/.test(status) && !NEVER_UPSTREAMS.has(status)) further.push("x-should-retry");
  const list = cases.map((each) => `- ${codeOf(each)}, \`${each.name}\`: ${each.words}`);
  return {
    description: [`${TITLES[status]}.`, "", ...list].join("\n"),
    headers: headersOf(further),
    content: jsonContent(reference("schemas", "Error"), {
      examples: Object.fromEntries(
        cases.map((each) => [each.name, { summary: codeOf(each), value: each.example }]),
      ),
    }),
  };
}

const codeOf = ({ name, code }: ErrorCase): string =>
  name === "upstream_refused" ? "the generator's own code" : `code ${code}`;
