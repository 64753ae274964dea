import type { GenerationEndpoint } from "../domain/endpoints.ts";

// The types of an adapter: how one upstream is spoken to. An adapter is pure functions: no I/O, no clock, no state. Deadlines,
// connections, credentials, bounds, redaction and billing are the gateway's. docs/upstreams.md says how to write one.

/** A function that throws, or returns none of these shapes, makes an unclear answer. `Options` is the type of what `options` validates. */
export interface Adapter<Options = Readonly<Record<string, unknown>>> {
  /** Names the adapter in the configuration, the log and the tags of tasks: `a-z`, digits and `-`, at most 32. */
  name: string;
  /** Validates `upstream.options` and applies its defaults; without it there are no options. */
  options?: OptionsSchema;
  /** How the credential is sent, unless `upstream.auth_header` or `upstream.auth_scheme` say otherwise. */
  auth?: { header?: string; scheme?: string };
  /** The request that starts a generation, or the parameters that this upstream does not have. */
  create(generation: Generation, options: Options): CreateRequest | Unsupported;
  /** Reads the answer to `create`. */
  created(response: AdapterResponse, options: Options): Created;
  /** The request that asks for a task. */
  poll(task: PolledTask, options: Options): AdapterRequest;
  /** Reads the answer to `poll`. */
  polled(response: AdapterResponse, task: PolledTask, options: Options): Polled | ResultElsewhere;
  /** Reads the answer to the request of `ResultElsewhere`. */
  result?(response: AdapterResponse, task: PolledTask, options: Options): Polled;
  /** Without it uploads are refused. No other upload has `uniqueName`: for an upstream where a file replaces another of its name. */
  upload?(options: Options, uniqueName: string): UploadForm;
  uploaded?(response: AdapterResponse, options: Options): Uploaded;
  /** The id of the task that a callback of the upstream is about; undefined if it names none. */
  callback?(request: CallbackRequest, options: Options): string | undefined;
}

/** A JSON Schema of an object, of typebox or written by hand. Members that it does not name are refused. */
interface OptionsSchema {
  readonly type: "object";
  readonly properties: Readonly<Record<string, object>>;
  readonly required?: readonly string[];
}

/** A generation as the customer requested it: validated, defaults applied. Its price is fixed already. */
export interface Generation {
  endpoint: GenerationEndpoint;
  /** The members of the endpoint's body in docs/openapi.json. What is left out or null, and has no default, is not there. */
  body: Readonly<Record<string, unknown>>;
  /** `body` as JSON. */
  text: string;
}

/** A request to the upstream. Credential, request id and the operator's own headers are added by the gateway. */
export interface AdapterRequest {
  method: "GET" | "POST";
  /** Appended to `upstream.url`; begins with `/`. */
  path: string;
  headers?: Readonly<Record<string, string>>;
  /** The body, or `text` where it is JSON already. */
  json?: unknown;
  text?: string;
}

export type CreateRequest = AdapterRequest & { method: "POST" };

/** Parameters that the upstream lacks: answered with 400 before anything is held. `path` is a JSON pointer into the body. */
export interface Unsupported {
  unsupported: readonly { path: string; message: string }[];
}

/** A complete answer of the upstream. */
export interface AdapterResponse {
  status: number;
  /** As UTF-8, without the gateway's credential. */
  body: string;
  /** The body as a JSON object; undefined if it is none. */
  json: Readonly<Record<string, unknown>> | undefined;
  /** Seconds or a date, as in the header. */
  retryAfter: string | undefined;
}

/** A definite no. After it nothing runs at the upstream, and nothing is charged. */
export type Rejection =
  /** `text` for the customer; without one the gateway has its own. `status` (400 to 499; 400) and `code` (the status) are shown, too. */
  | { outcome: "refused"; text?: string | undefined; status?: number; code?: number }
  /** The upstream limits the gateway. A `Retry-After` header counts more than `retryAfterSeconds`. */
  | { outcome: "rate_limited"; retryAfterSeconds?: number | undefined }
  /** The gateway's credential, account or address is refused. */
  | { outcome: "refused_gateway" };

/** The meaning of an answer to `create`. Without a task id nothing is charged; with one, the task is always bound. */
export type Created =
  | Rejection
  /** `task`: fields for the customer in the interface's names, beside the id. */
  | { outcome: "accepted"; taskId: string; task?: Readonly<Record<string, unknown>> }
  /** It was not run: maintenance, overload. */
  | { outcome: "unavailable" }
  /** It may run. */
  | { outcome: "unclear" };

export interface PolledTask {
  /** The upstream's own. */
  taskId: string;
  /** Undefined for a task of which only the id is known. */
  endpoint: GenerationEndpoint | undefined;
}

export type Polled =
  /**
   * `status` is the upstream's word. `task` has the interface's names; `progress` is in percent, times are ISO 8601 with a zone or Unix s or ms,
   * further fields pass through. Another `task_id` counts as an answer about another task.
   */
  | { outcome: "task"; status: string; task: Readonly<Record<string, unknown>> }
  /** The upstream does not know the task, and says so. */
  | { outcome: "gone" }
  | Exclude<Rejection, { outcome: "refused" }>
  /** `isFinal`: the upstream will never say more of this task; at its maximum age it ends as failed. */
  | (Extract<Rejection, { outcome: "refused" }> & { isFinal?: boolean })
  /** Something that does not serve the API answers at this address: a redirect, a proxy's page. */
  | { outcome: "misrouted" }
  /** It could not be asked: a fault of the upstream. `why` is for the log. */
  | { outcome: "failed"; why?: string };

/** The task has ended, and the result has an address of its own, which is asked once, within the same deadline. */
export interface ResultElsewhere {
  outcome: "result_elsewhere";
  request: AdapterRequest;
}

/** How an image is sent: one multipart form with these fields before the file. */
export interface UploadForm {
  /** Appended to `upstream.upload_url`, or to `upstream.url` without that; begins with `/`. */
  path: string;
  headers?: Readonly<Record<string, string>>;
  fields?: Readonly<Record<string, string>>;
  /** The name of the file's part; `file` by default. */
  fileField?: string;
}

export type Uploaded =
  | Rejection
  /** `url`: https. `expiresAt`: as in `Polled`; undefined: not said. `data`: more fields for the customer. */
  | {
      outcome: "uploaded";
      url: string;
      expiresAt: string | number | undefined;
      data?: Readonly<Record<string, unknown>>;
    }
  | { outcome: "failed"; why?: string };

/** A callback of the upstream, of which nothing is believed but which task it names. */
export interface CallbackRequest {
  headers: Readonly<Record<string, string | string[] | undefined>>;
  body: string;
  json: Readonly<Record<string, unknown>> | undefined;
}

/** A row of `answers`, which a module exports beside its adapter: `tollgate adapter test` runs them. */
export interface AnswerRow {
  call: "created" | "polled" | "result" | "uploaded" | "callback";
  /** `status` is 200 by default; an object as `body` is sent as JSON. */
  response: {
    status?: number;
    body?: unknown;
    retryAfter?: string;
    headers?: Readonly<Record<string, string>>;
  };
  /** The polled task; a task `task-1` of gen2/text-to-video by default. */
  task?: PolledTask;
  /** As in `upstream.options`. */
  options?: Readonly<Record<string, unknown>>;
  /** Members that the function's result must have, with these values; further members are not compared. */
  expect: unknown;
}
