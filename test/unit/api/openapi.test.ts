import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { COMMON_HEADERS, openApiText } from "../../../src/api/document.ts";
import { GENERATION_ENDPOINTS } from "../../../src/domain/endpoints.ts";
import { commonHeaders, noLimits } from "../../../src/domain/envelope.ts";
import { ERROR_NAMES } from "../../../src/domain/errors.ts";
import { ROUTE_TEMPLATES, route } from "../../../src/gateway/request-lifecycle.ts";
import { readDescription } from "../../support/openapi.ts";
import { ALL, MINIMAL, problems } from "../domain/generation-stage.ts";

const document = JSON.parse(openApiText());
const description = readDescription(document);

describe("the API description", () => {
  test("has exactly the router's paths, each with its one method", () => {
    const paths = Object.keys(document.paths).sort();
    expect(paths).toEqual(ROUTE_TEMPLATES.filter((path) => path.startsWith("/api/")).sort());
    for (const { method, path } of description.operations)
      expect(route(method, path), `${method} ${path}`).not.toHaveProperty("allow");
  });

  test("puts the headers that every answer has on every answer", () => {
    const written = commonHeaders(noLimits(0), "req_1", 0).filter((_, at) => at % 2 === 0);
    expect(Object.keys(COMMON_HEADERS)).toEqual(written.filter((name) => !name.startsWith("Content-")));
    for (const { answers } of description.operations)
      for (const { name, headers } of Object.values(answers))
        for (const common of Object.keys(COMMON_HEADERS))
          expect(headers[common]?.required, `${common} on ${name}`).toBe(true);
  });

  // Guarantee: clients can be generated from it, and nobody sends a key of the examples with each video.
  test("has no range of statuses, and no example of an Idempotency-Key", () => {
    const keys = description.operations.flatMap(({ answers }) => Object.keys(answers));
    expect(keys.filter((key) => !/^(?:\d{3}|default)$/.test(key))).toEqual([]);
    expect(keys).toContain("default");
    const parameters = Object.values<{ name: string; example?: unknown; examples?: unknown }>(
      document.components.parameters,
    ).filter(({ name }) => name === "Idempotency-Key");
    expect(parameters).toHaveLength(1);
    expect(parameters.filter((each) => "example" in each || "examples" in each)).toEqual([]);
  });

  test("shows every error of the table, each with its code and text", () => {
    const shown = description.operations.flatMap(({ answers }) =>
      Object.values(answers).flatMap(({ examples }) => Object.keys(examples)),
    );
    expect(ERROR_NAMES.filter((name) => !shown.includes(name))).toEqual([]);
  });
});

/** Rules that no schema can say; the document puts them into words. */
const BEYOND_A_SCHEMA = /add up to|must begin with|a well-formed URL|half a surrogate/;

const URLS = [
  "https://a.example/x?y#z",
  "HTTPS://A.example",
  "http://a.example:8080",
  "ftp://a.example",
  "https:/a.example",
  "https:///x",
  "https://a.example/b c",
  "https://a.example\\b",
  "https://a.example:99999",
  "https://a.example/k\u00e4se|{}",
  "https://[::1]/",
  "https://1.2.3.4.5/",
  "",
];
const VALUES = [
  ...URLS,
  "a",
  "a".repeat(2001),
  "\u{1F600}".repeat(2000),
  "16:9",
  "square",
  "high",
  "10",
  "15",
  10,
  15,
  11,
  1.5,
  true,
  null,
  [],
  ["https://a.example"],
  ["ftp://a"],
  [{ Scene: "a", duration: 15 }],
  [{ Scene: "", duration: 10 }],
  [{ Scene: "a", duration: 0 }],
  [{ Scene: "a", duration: 10, scene: "b" }],
  {},
];
const NAMES = ["prompt", "negativePrompt", "aspectRatio", "duration", "quality", "imageUrl", "videoUrl"];
const bodies = fc.dictionary(
  fc.constantFrom(...NAMES, "nFrames", "shots", "imageUrls", "callBackUrl", "promt"),
  fc.constantFrom(...VALUES),
  { maxKeys: 3 },
);

// Guarantee: what the document allows is accepted and what it forbids is refused, but for rules it can only tell.
test.each(ALL)("the documented body of %s is the one that is validated", (endpoint) => {
  const { operations } = description;
  const operation = operations.find(({ path }) => path.endsWith(`/${endpoint}`));
  const { schema } = operation!.requestBody!.content["application/json"]!;
  const checker = description.checker(schema);
  const seen = { accepted: 0, refused: 0 };
  fc.assert(
    fc.property(bodies, fc.boolean(), (changes, fromMinimal) => {
      const body = { ...(fromMinimal ? MINIMAL[endpoint] : {}), ...changes };
      const found = problems(endpoint, body).filter((problem) => !BEYOND_A_SCHEMA.test(problem));
      expect(checker.Check(body), JSON.stringify({ body, found })).toBe(found.length === 0);
      seen[found.length === 0 ? "accepted" : "refused"]++;
    }),
    { numRuns: 500 },
  );
  expect(Math.min(seen.accepted, seen.refused), JSON.stringify(seen)).toBeGreaterThan(10);
});

test("every generation endpoint has a body with a name of its own", () => {
  const names = description.operations.flatMap(({ requestBody }) =>
    JSON.stringify(requestBody?.content["application/json"]?.schema ?? []),
  );
  expect(new Set(names.filter((name) => name !== "[]")).size).toBe(GENERATION_ENDPOINTS.length);
});

/** Every object within a value, itself included. */
function* objectsIn(value: unknown): Generator<Record<string, unknown>, undefined> {
  if (typeof value !== "object" || value === null) return;
  if (!Array.isArray(value)) yield value as Record<string, unknown>;
  for (const part of Object.values(value)) yield* objectsIn(part);
}

// openapi-typescript 7 (default flags) makes a property with a `default` required, so `{prompt: "a"}` did not compile.
test("no parameter that may be left out has a default, but for its words", () => {
  const schemas: Record<string, Record<string, unknown>> = document.components.schemas;
  for (const schema of objectsIn(schemas)) expect(schema).not.toHaveProperty("default");
  expect(schemas.Gen2TextToVideo).toMatchObject({
    required: ["prompt"],
    properties: { aspectRatio: { description: "Width to height. Left out, it is `16:9`." } },
  });
  expect(schemas.Gen2ProTextToVideo).toMatchObject({ required: ["prompt"] });
});

test("no pattern of the document needs a look-ahead, and none of its formats is one that nobody holds", () => {
  for (const { pattern, format } of objectsIn(document)) {
    if (typeof pattern === "string") expect(pattern).not.toContain("(?!");
    if (typeof format === "string") expect(["date-time", "binary"]).toContain(format);
  }
});
