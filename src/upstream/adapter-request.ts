import { isObject } from "../domain/json.ts";
import type { AdapterRequest, UploadForm } from "./adapter.ts";
import { AdapterMistake, returned } from "./dialect.ts";
import { headerProblem } from "./gateway-headers.ts";

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
  /** Flat name, value pairs; undefined for none. */
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

/** @throws AdapterMistake for one that is reserved or cannot be sent */
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
