import type { Static, TObject } from "typebox";
import type { GenerationEndpoint } from "../domain/endpoints.ts";

// The types of an adapter: how one upstream is spoken to. An adapter is pure functions: no I/O, no clock, no state. Deadlines,
// connections, credentials, bounds, redaction and billing are the gateway's. docs/upstreams.md says how to write one.

/** A dialect of an upstream. A function that throws, or returns none of these shapes, makes an unclear answer. */
export interface Adapter<Options extends TObject = TObject> {
  /** Names the adapter in the configuration, the log and the tags of tasks: `a-z`, digits and `-`, at most 32. */
  name: string;
  /** Validates `upstream.options` and applies its defaults; without it there are no options. */
  options?: Options;
  /** The request that starts a generation, or the parameters that this upstream does not have. */
  create(generation: Generation, options: Static<Options>): AdapterRequest | Unsupported;
  /** Reads the answer to `create`. */
  created(response: AdapterResponse, options: Static<Options>): Created;
  /** The request that asks for a task. */
  poll(task: PolledTask, options: Static<Options>): AdapterRequest;
  /** Reads the answer to `poll`. */
  polled(response: AdapterResponse, task: PolledTask, options: Static<Options>): Polled | ResultElsewhere;
  /** Reads the answer to the request of `ResultElsewhere`. */
  result?(response: AdapterResponse, task: PolledTask, options: Static<Options>): Polled;
  /** The form of an upload; without it, uploads are refused as not supported. */
  upload?(options: Static<Options>): UploadForm;
  /** Reads the answer to an upload. */
  uploaded?(response: AdapterResponse, options: Static<Options>): Uploaded;
  /** The id of the task that a callback of the upstream is about; undefined if it names none. */
  callback?(request: CallbackRequest, options: Static<Options>): string | undefined;
}

/** A generation as the customer requested it: validated, defaults applied. Its price is fixed already. */
export interface Generation {
  endpoint: GenerationEndpoint;
  body: Readonly<Record<string, unknown>>;
  /** `body` as JSON. */
  text: string;
}

/** What is sent. Credential, request id and the operator's own headers are added by the gateway. */
export interface AdapterRequest {
  method: "GET" | "POST";
  /** Appended to `upstream.url`; begins with `/`. */
  path: string;
  headers?: Readonly<Record<string, string>>;
  /** The body, or `text` where it is JSON already. */
  json?: unknown;
  text?: string;
}

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
  /** The request was refused, with a text for the customer. `status` (400 to 499) and `code` are shown, too; 400 by default. */
  | { outcome: "refused"; text: string; status?: number; code?: number }
  /** The upstream limits the gateway. */
  | { outcome: "rate_limited"; retryAfterSeconds?: number | undefined }
  /** The gateway's credential, account or address is refused. */
  | { outcome: "refused_gateway" };

/** What an answer to `create` means. Without a task id nothing is charged; with one, the task is always bound. */
export type Created =
  | Rejection
  /** `task`: fields for the customer in the interface's names, beside the id. */
  | { outcome: "accepted"; taskId: string; task?: Readonly<Record<string, unknown>> }
  /** It was not run: maintenance, overload. */
  | { outcome: "unavailable" }
  /** Whether it runs is not known. */
  | { outcome: "unclear" };

export interface PolledTask {
  /** As the upstream named it. */
  taskId: string;
  /** Undefined for a task of which only the id is known. */
  endpoint: GenerationEndpoint | undefined;
}

/** What an answer to a poll means. */
export type Polled =
  /**
   * The task. `status` is the upstream's word. `task` has the interface's names (`video_url`, `thumbnail_url`, `progress`,
   * `created_at`, `completed_at`, `failure_reason`); times may be ISO 8601 with a zone or Unix seconds or milliseconds, and
   * further fields pass through.
   */
  | { outcome: "task"; status: string; task: Readonly<Record<string, unknown>> }
  /** The upstream does not know the task, and says so. */
  | { outcome: "gone" }
  | Rejection
  /** It could not be asked: a fault of the upstream, an answer about another task. */
  | { outcome: "failed" };

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

/** What an answer to an upload means. */
export type Uploaded =
  | Rejection
  /** `expiresAt`: ISO 8601 in UTC, or undefined where the upstream does not say when the address ends. */
  | {
      outcome: "uploaded";
      url: string;
      expiresAt: string | undefined;
      data?: Readonly<Record<string, unknown>>;
    }
  | { outcome: "failed" };

/** A callback of the upstream, of which nothing is believed but which task it names. */
export interface CallbackRequest {
  headers: Readonly<Record<string, string | string[] | undefined>>;
  body: string;
  json: Readonly<Record<string, unknown>> | undefined;
}
