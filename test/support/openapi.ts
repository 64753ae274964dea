import { Compile, type Validator } from "typebox/schema";
import { expect } from "vitest";
import type { Reply } from "./gateway.ts";

/** As much of an OpenAPI document as the tests look into. */
export interface Document {
  paths: Record<string, Record<string, Operation>>;
  components: { responses: Record<string, Response>; schemas: Record<string, object> };
}

interface Operation {
  operationId: string;
  requestBody?: { content: Record<string, Content> };
  responses: Record<string, Response | Reference>;
}

interface Content {
  schema: object;
  examples: Record<string, { summary: string; value: unknown }>;
}

interface Response {
  description: string;
  headers: Record<string, Header | Reference>;
  content: Record<string, Content>;
}

interface Header {
  required?: boolean;
  schema: { type: string };
}

interface Reference {
  $ref: string;
}

/** One documented answer: of an operation by itself (`getTask 200`), or shared under a name (`TaskBadGateway`). */
export interface DocumentedAnswer {
  name: string;
  headers: Record<string, Header>;
  schema: object;
  examples: Content["examples"];
}

/** Headers that belong to HTTP itself, whatever the answer is about. */
const PLAIN_HEADERS = new Set(["connection", "content-length", "content-type", "date", "keep-alive"]);

/** Reads a description and holds a gateway's answers against it. */
export function readDescription(document: Document) {
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      path,
      method: method.toUpperCase(),
      ...operation,
      answers: Object.fromEntries(
        Object.entries(operation.responses).map(([status, response]) => [
          status,
          answerOf(`${operation.operationId} ${status}`, response),
        ]),
      ),
    })),
  );

  function answerOf(name: string, given: Response | Reference): DocumentedAnswer {
    if (isReference(given)) name = given.$ref.split("/").at(-1)!;
    const { headers, content } = resolved(document, given);
    const { schema, examples } = content["application/json"]!;
    return { name, headers: whole(document, headers) as DocumentedAnswer["headers"], schema, examples };
  }

  const find = (operationId: string) => {
    const operation = operations.find((each) => each.operationId === operationId);
    if (!operation) throw new Error(`no operation ${operationId}`);
    return operation;
  };

  const checkers = new Map<object, Validator>();
  const checker = (schema: object): Validator => {
    const known = checkers.get(schema) ?? Compile(whole(document, schema) as object);
    checkers.set(schema, known);
    return known;
  };

  return {
    operations,
    find,
    /** The operation of a path, whatever the method; undefined where there is none. */
    at(path: string) {
      const template = path.split("?")[0]?.replace(/(\/tasks\/)[^/]+$/, "$1{taskId}");
      return operations.find((each) => each.path === template);
    },
    /** Checks values against a schema that may refer to others. */
    checker,
    /** Holds an answer against what the operation documents for its status. @returns the documented answer */
    hold(operationId: string, reply: Reply): DocumentedAnswer {
      const { answers } = find(operationId);
      const status = String(reply.status);
      const answer = answers[status] ?? (status.startsWith("4") ? answers.default : undefined)!;
      expect(answer, `an answer of ${operationId} with status ${status}`).toBeDefined();
      holdHeaders(answer, reply);
      const [, errors] = checker(answer.schema).Errors(reply.body);
      expect(errors, `${answer.name}: ${JSON.stringify(reply.body)}`).toEqual([]);
      return answer;
    },
  };
}

function holdHeaders(answer: DocumentedAnswer, { headers }: Reply): void {
  expect(headers.get("content-type"), answer.name).toMatch(/^application\/json\b/);
  for (const [name, { required, schema }] of Object.entries(answer.headers)) {
    const text = headers.get(name);
    if (text === null) {
      expect(required ?? false, `${answer.name} lacks ${name}`).toBe(false);
      continue;
    }
    const value = schema.type === "integer" ? Number(text) : text;
    expect(Compile(schema).Check(value), `${answer.name}, ${name}: ${text}`).toBe(true);
  }
  const documented = new Set(Object.keys(answer.headers).map((name) => name.toLowerCase()));
  const others = [...headers.keys()].filter((name) => !documented.has(name) && !PLAIN_HEADERS.has(name));
  expect(others, `headers that ${answer.name} does not document`).toEqual([]);
}

const isReference = (value: unknown): value is Reference =>
  typeof value === "object" && value !== null && "$ref" in value;

function resolved<T>(document: Document, value: T | Reference): T {
  if (!isReference(value)) return value;
  const steps = value.$ref.split("/").slice(1);
  // biome-ignore lint/suspicious/noExplicitAny: a pointer leads anywhere.
  return steps.reduce<any>((at, step) => at[step], document);
}

/** The value with all references in it replaced by what they refer to; none of ours refers to itself. */
function whole(document: Document, value: unknown): unknown {
  if (Array.isArray(value)) return value.map((item) => whole(document, item));
  if (typeof value !== "object" || value === null) return value;
  const target = resolved<object>(document, value);
  return Object.fromEntries(Object.entries(target).map(([name, item]) => [name, whole(document, item)]));
}

/** Shape of a value: names and types; an array by the shapes of its items. */
export function shapeOf(value: unknown): unknown {
  if (Array.isArray(value)) return [...new Set(value.map((item) => JSON.stringify(shapeOf(item))))].sort();
  if (typeof value !== "object" || value === null) return typeof value;
  const names = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(names.map(([name, item]) => [name, shapeOf(item)]));
}
