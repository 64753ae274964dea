import { isObject } from "../domain/json.ts";
import type { Adapter, AdapterRequest, AdapterResponse, UploadForm } from "./adapter.ts";
import type { AdapterChoice } from "./adapter-choice.ts";
import { ENVELOPE } from "./adapters/envelope.ts";
import type { Answer, Envelope } from "./answer.ts";
import { excerptOf } from "./answer-excerpt.ts";
import { headerProblem } from "./gateway-headers.ts";

export const ADAPTER_FUNCTIONS = [
  "create",
  "created",
  "poll",
  "polled",
  "result",
  "upload",
  "uploaded",
  "callback",
] as const;
type AdapterFunction = (typeof ADAPTER_FUNCTIONS)[number];

export interface AdapterObserver {
  fault(adapter: string, called: AdapterFunction): void;
  slow(adapter: string, called: AdapterFunction, tookMs: number): void;
}

/** An adapter threw, or returned none of the shapes in adapter.ts. `detail` is for the log. */
export interface AdapterFault {
  outcome: "adapter_fault";
  detail: string;
}

/** Thrown for a result of an adapter that cannot be used; the message says what is wrong with it. */
export class AdapterMistake extends Error {}

/** @throws AdapterMistake for a promise: one that is rejected later would end the process */
export function returned<Result>(result: Result): Result {
  if (!(result instanceof Promise)) return result;
  result.catch(() => undefined);
  throw new AdapterMistake("returned a promise");
}

/** Functions of an adapter are synchronous: while one runs, nothing else does. */
const SLOW_MS = 50;
/** Of a stack's lines. The expression below is not linear, and the message before them may be an answer. */
const STACK_CHARS_MAX = 4096;
/** The first place of a stack that is in a module. */
const STACK_PLACE = /([\w.-]+)\.[0-9a-f]{16}(\.[cm]?[jt]s:\d+)|([\w.-]+\.[cm]?[jt]s:\d+)/;

/** An adapter with its options. Its functions are called through `call`, which never throws. */
export class Dialect {
  readonly name: string;
  readonly adapter: Adapter;
  readonly options: AdapterChoice["options"];
  readonly #observer: AdapterObserver | undefined;
  /** The default adapter is known to be fast, and each reading of the clock would cost every request. */
  readonly #isTimed: boolean;

  constructor({ name, adapter, options }: AdapterChoice, observer?: AdapterObserver) {
    this.name = name;
    this.adapter = adapter();
    this.#isTimed = this.adapter !== ENVELOPE;
    this.options = options;
    this.#observer = observer;
  }

  /** @param sent the request's body, of which nothing must get into the log @param use calls it, and reads what it returned */
  call<Result>(called: AdapterFunction, sent: string, use: () => Result): Result | AdapterFault {
    const fromMs = this.#isTimed ? performance.now() : 0;
    try {
      return use();
    } catch (error) {
      this.#observer?.fault(this.name, called);
      const detail = `adapter ${this.name}: ${called} ${inWords(error, sent)}`;
      return { outcome: "adapter_fault", detail };
    } finally {
      const tookMs = this.#isTimed ? performance.now() - fromMs : 0;
      if (tookMs > SLOW_MS) this.#observer?.slow(this.name, called, tookMs);
    }
  }
}

function inWords(error: unknown, sent: string): string {
  try {
    if (error instanceof AdapterMistake) return error.message;
    if (!(error instanceof Error)) return "threw a value that is no error";
    const [, module, line, file] = STACK_PLACE.exec(stackLines(error)) ?? [];
    const place = file ?? (module === undefined ? undefined : `${module}${line}`);
    const text = excerptOf(`${error.name}: ${error.message}`, sent);
    return place === undefined ? `threw ${text}` : `threw ${text} (${place})`;
  } catch {
    return "threw a value that cannot be read";
  }
}

/** Without the message, of which only an excerpt may get into the log. */
function stackLines({ message, stack = "" }: Error): string {
  const messageAt = stack.indexOf(message);
  const at = stack.indexOf("\n    at ", messageAt === -1 ? 0 : messageAt + message.length);
  return at === -1 ? "" : stack.slice(at, at + STACK_CHARS_MAX);
}

export const responseOf = ({ status, body, retryAfter }: Answer, json: Envelope): AdapterResponse => ({
  status,
  body,
  json,
  retryAfter,
});

// Requests of adapters are checked before they are sent: each stays below `upstream.url`, and sets none of the gateway's headers.

/** Visible ASCII without `#` and `\\`, which a URL cannot have. */
const PATH = /^\/[!"$-[\]-~]*$/;
/** A step to another path, as every reader of URLs takes it. An id may be one: `encodeURIComponent` leaves it as it is. */
const DOT_SEGMENT = /\/(?:\.|%2e){1,2}(?:$|\/)/i;
const PATH_CHARS_MAX = 8192;
/** More than four times the largest body of a customer. */
const BODY_CHARS_MAX = 1024 * 1024;

export interface CheckedRequest {
  method: "GET" | "POST";
  path: string;
  body: string | null;
  headers: string[] | undefined;
}

/** @throws AdapterMistake for a request that cannot be sent */
export function checkRequest(request: AdapterRequest): CheckedRequest {
  if (!isObject(returned(request))) throw new AdapterMistake("returned no request");
  const { method, path, headers } = request;
  if (method !== "GET" && method !== "POST")
    throw new AdapterMistake("returned a request whose method is neither GET nor POST");
  checkPath(path);
  const body = bodyOf(request);
  if (method === "POST" ? body === null : body !== null)
    throw new AdapterMistake(`returned a ${method} ${body === null ? "without" : "with"} a body`);
  return { method, path, body, headers: headers === undefined ? undefined : flatHeaders(headers) };
}

function checkPath(path: unknown): asserts path is string {
  if (typeof path !== "string" || path.length > PATH_CHARS_MAX || !PATH.test(path))
    throw new AdapterMistake("returned a path that does not begin with / or cannot be sent");
  if (DOT_SEGMENT.test(path.split("?", 1)[0]!))
    throw new AdapterMistake("returned a path with a step such as .. in it");
}

export interface CheckedForm {
  path: string;
  headers: string[];
  fields: readonly (readonly [name: string, value: string])[];
  fileField: string;
}

const FIELD = /^[\w.[\]-]{1,64}$/;
const FIELD_CHARS_MAX = 4096;

export function checkForm(form: UploadForm): CheckedForm {
  if (!isObject(returned(form))) throw new AdapterMistake("returned no form");
  const { path, headers = {}, fields = {}, fileField = "file" } = form;
  checkPath(path);
  const entries = Object.entries(fields);
  if (![fileField, ...entries.map(([name]) => name)].every((name) => FIELD.test(name)))
    throw new AdapterMistake("returned a form with a name that is not of letters, digits and . _ - [ ]");
  if (!entries.every(([, value]) => typeof value === "string" && value.length <= FIELD_CHARS_MAX))
    throw new AdapterMistake(
      `returned a form with a field that is no text of at most ${FIELD_CHARS_MAX} characters`,
    );
  return { path, headers: flatHeaders(headers), fields: entries, fileField };
}

function bodyOf({ json, text }: AdapterRequest): string | null {
  if (text === undefined && json === undefined) return null;
  const body: unknown = text ?? JSON.stringify(json);
  if (typeof body !== "string") throw new AdapterMistake("returned a body that is no JSON");
  if (body.length > BODY_CHARS_MAX)
    throw new AdapterMistake(`returned a body of more than ${BODY_CHARS_MAX} characters`);
  return body;
}

function flatHeaders(headers: Readonly<Record<string, string>>): string[] {
  if (!isObject(headers)) throw new AdapterMistake("returned headers that are no object");
  const entries = Object.entries(headers);
  for (const [name, value] of entries) {
    const problem = headerProblem(name, value);
    if (problem !== undefined)
      throw new AdapterMistake(`returned a header ${JSON.stringify(name)} that ${problem}`);
  }
  return entries.flat();
}
