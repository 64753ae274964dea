import { FILE_BYTES_MAX, HEADERS_BYTES_MAX, JSON_BODY_BYTES_MAX, JSON_DEPTH_MAX } from "../domain/limits.ts";
import { jsonContent, openApiDocument, reference } from "./builder.ts";
import { type ErrorCase, errorCases, KINDS, type Kind } from "./errors.ts";
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
const NEVER_DEGRADED = new Set(["401", "402", "403", "417", "426", "431", "505"]);

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

const TAGS = [
  { name: "Credits", description: "What is left, and where it went." },
  { name: "Generation", description: "Six ways to ask for a video. Each costs credits and makes a task." },
  { name: "Tasks", description: "What has become of a request." },
  { name: "Upload", description: "Images to make videos of." },
];

const KIB = 1024;

/** The part of the description that holds for all operations, in Markdown. */
const INTRODUCTION = `
Ask for a video, get a task, poll the task until it has ended. Every answer is JSON in one envelope: \`code\` 200 means
success and comes with \`data\`; any other code is an error and comes with \`error\`.

## Limits

Three limits belong to a key: generation requests in any 60 seconds, generation requests per day (midnight UTC starts
a new one), tasks at the same time. They are looked at in this order, and then the credits. Only the six generation
endpoints count; polls, uploads and credits do not. A request that is refused here consumes nothing at all; one that the
generator refuses has still taken its place in the 60 seconds.

Five headers on every answer say where the key stands: \`X-RateLimit-Limit\`, \`X-RateLimit-Remaining\`,
\`X-RateLimit-Reset\`, \`X-Concurrent-Limit\`, \`X-Concurrent-Active\`. Where no key is known or the store is unavailable they are
zeros, and the reset is now.

## Credits

A generation has a price in whole credits, fixed when it is admitted. The price is held while the generator is asked,
charged once there is a task, and let go where there is none. A task that ends as \`failed\` is refunded, unless the
operator has turned that off. Prices are the operator's; a 402 names that of the request.

## Sending again

Where waiting helps, an error carries \`retryAfter\` in its body and \`Retry-After\` as a header: seconds, the same number.
Where it carries \`x-should-retry: false\`, a program must not send the request again by itself. Send an
\`Idempotency-Key\` with each generation: it is what makes it safe to repeat one after a 502, a 504 or a lost connection.
A repeat gets the first answer, with \`Idempotency-Replayed: true\`, and is charged once.

## Errors

\`code\` says what went wrong; it is mostly the HTTP status, and 2001 to 2007 tell the limits apart. Where several errors
share a code, the headers \`Retry-After\` and \`x-should-retry\` say what may be done; the names beside the codes stand in
the operator's log and documents, not in the answer. Texts are for people and may change. \`details\`, where present,
lists every broken rule with its place in the body.

Where the generator refuses the request itself, its own 4xx status, code and text are passed on: a status that is listed
with a code of the gateway may then come with one of the generator.

## HTTP

HTTP/1.1 or 1.0; at most ${HEADERS_BYTES_MAX / KIB} KiB of request line and headers, ${JSON_BODY_BYTES_MAX / KIB} KiB of JSON,
${FILE_BYTES_MAX / KIB / KIB} MiB of file. Headers and JSON have 15 seconds to arrive, by default; an upload may be slow, but not stand still for
as long. JSON is UTF-8, well-formed and without duplicate names, nested at most ${JSON_DEPTH_MAX} deep, sent as
\`application/json\` and without a \`Content-Encoding\`. Unknown parameters are refused, with a suggestion; \`null\` for
an optional parameter is an absent one. A query is ignored, but for that of \`/api/v1/usage\`. The key is asked for first, also where the path or the method is wrong. There is no CORS: keys belong on
servers.
`.trim();

/** Headers of answers, by name. */

const count = (description: string, example: number) => ({
  description,
  required: true,
  schema: { type: "integer", minimum: 0 },
  example,
});

/** A header that has one value where it is there at all. */
const flag = (value: string, description: string) => ({
  description,
  schema: { type: "string", const: value },
  example: value,
});

/** On every answer of the public port, whatever it is; named as `commonHeaders` writes them. */
export const COMMON_HEADERS = {
  "X-RateLimit-Limit": count(
    "Generation requests that the key may make in any 60 seconds; 0 where no key is known.",
    20,
  ),
  "X-RateLimit-Remaining": count("How many of them are left now.", 19),
  "X-RateLimit-Reset": count(
    "Unix time in seconds at which the oldest counted request leaves the window; now, if none is counted.",
    1_795_275_660,
  ),
  "X-Concurrent-Limit": count("Tasks that the key may have at the same time; 0 where no key is known.", 3),
  "X-Concurrent-Active": count("Tasks that it has now; generations whose task is not known yet count.", 1),
  "X-Request-Id": {
    description:
      "Names this request in the operator's log; on an error also in `request_id`. It is the request's own " +
      "`X-Request-Id`, if that is 1 to 64 letters, digits, dots, dashes and underscores and neither begins with `req_` " +
      "nor holds `sk_` or `tgm_`; else one of the gateway.",
    required: true,
    schema: { type: "string", pattern: "^[\\w.~-]+$" },
    example: "req_mi8w3k1q5f0c2a9d000001",
  },
} as const;

export const FURTHER_HEADERS = {
  "Retry-After": {
    description: "Seconds to wait before trying again; the same number as `retryAfter`.",
    schema: { type: "integer", minimum: 1 },
    example: 7,
  },
  "x-should-retry": flag(
    "false",
    "`false` where a program must not repeat the request by itself: credits or the day are used up, the key may not use " +
      "the endpoint, the generator has refused the request or the gateway, or a generation without an `Idempotency-Key` " +
      "may have made a task. Else absent.",
  ),
  "WWW-Authenticate": flag("Bearer", "How to authenticate. RFC 9110 section 11.6.1."),
  Allow: {
    description: "The method that the path has; with 405.",
    schema: { type: "string", enum: ["GET", "POST"] },
    example: "POST",
  },
  Upgrade: flag("HTTP/1.1", "The protocol to use. RFC 9110 section 15.5.22."),
  "Idempotency-Replayed": flag(
    "true",
    "`true` where this is the stored answer of the first request with the same `Idempotency-Key`; nothing was charged again.",
  ),
  "X-Gateway-Request-Id": {
    description:
      "The gateway's own id of this request, where `X-Request-Id` is the client's. Unique, and the name of the request " +
      "in the operator's ledger.",
    schema: { type: "string", pattern: "^req_\\w+$" },
    example: "req_mi8w3k1q5f0c2a9d000001",
  },
  "X-Gateway-Degraded": flag(
    "store",
    "`store` while the gateway works without its store: this request was neither counted nor charged. On a success the five " +
      "numbers are the key's limits with nothing in use; else they are zeros.",
  ),
} as const;

/** References to the headers of one answer: the common ones, and these. */
function headersOf(further: Iterable<string>): Record<string, { $ref: string }> {
  const names = [...Object.keys(COMMON_HEADERS), "X-Gateway-Request-Id", ...new Set(further)];
  return Object.fromEntries(names.map((name) => [name, reference("headers", name)]));
}
