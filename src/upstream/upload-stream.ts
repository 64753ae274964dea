import { randomUUID } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import { MIMEType } from "node:util";
import { type Refusal, refuse } from "../domain/errors.ts";
import { isObject, parseObject } from "../domain/json.ts";
import { isIdentity } from "../domain/limits.ts";
import { isHttpsUrl } from "../domain/urls.ts";
import type { Carried } from "../telemetry/trace.ts";
import type { Uploaded } from "./adapter.ts";
import { type AdapterChoice, ENVELOPE_CHOICE } from "./adapter-choice.ts";
import { type Answer, utcTime } from "./answer.ts";
import { describeAnswer, excerptOf } from "./answer-excerpt.ts";
import {
  AdapterMistake,
  type AdapterObserver,
  type CheckedForm,
  checkForm,
  Dialect,
  responseOf,
  returned,
} from "./dialect.ts";
import { type GatewayIdentity, gatewayHeaders } from "./gateway-headers.ts";
import { tlsOptions, type UpstreamTls } from "./json-client.ts";
import { readRejection } from "./rejection.ts";
import { readUpload } from "./upload-body.ts";
import { fileTooLarge, invalidForm, UPLOAD_BYTES_MAX, wrongMedia } from "./upload-form.ts";
import { openUpload, type UploadClient, type UploadRequest, type UploadTarget } from "./upload-request.ts";

/** Not imported: decision 0040. */
const { Agent, validateHeaderValue } = process.getBuiltinModule("node:http");

// Streams uploads from clients to the upstream, under back pressure. An upload costs 2 to 3 MB of memory while it streams,
// whatever its size (decision 0025), and nothing of it is stored. gateway/upload.ts limits how many run at a time.

export interface UploadOptions extends GatewayIdentity, UpstreamTls {
  url: string;
  uploadUrl?: string | undefined;
  /** How the upstream is spoken to; the interface's own shapes by default. */
  dialect?: AdapterChoice;
  observer?: { adapter?: AdapterObserver };
  connectTimeoutMs: number;
  /** From the end of the form to the end of the answer. */
  headersTimeoutMs: number;
  /** From the first byte read to the outcome; includes the client's time and the upstream's. */
  totalTimeoutMs: number;
  /** Longest pause of the client, without back pressure; also the period over which its rate is measured. */
  idleTimeoutMs: number;
  /** The rate that a client must reach, on average over each `idleTimeoutMs`; 0 for no minimum. */
  minBytesPerSecond: number;
  /** Connections to the upstream at most, one per upload. The gateway answers 503 to an upload for which there is none. */
  connections: number;
  keepAliveTimeoutMs: number;
}

export type UploadTunnel = ReturnType<typeof createUploadTunnel>;

/** @throws TypeError when the URL or the API key cannot be sent */
export function createUploadTunnel(options: UploadOptions) {
  const url = new URL(options.uploadUrl ?? options.url);
  const dialect = new Dialect(options.dialect ?? ENVELOPE_CHOICE, options.observer?.adapter);
  if (options.apiKey !== undefined) validateHeaderValue("authorization", options.apiKey);
  const settings = {
    keepAlive: true,
    maxSockets: options.connections,
    maxFreeSockets: options.connections,
    timeout: options.keepAliveTimeoutMs,
  };
  const agent =
    url.protocol === "https:" ? new HttpsAgent({ ...settings, ...tlsOptions(options) }) : new Agent(settings);
  const ownHeaders = gatewayHeaders(options, dialect.adapter.auth);
  const { apiKey, connectTimeoutMs } = options;
  const target = { url, agent, apiKey, ownHeaders, connectTimeoutMs };
  return {
    /**
     * Resolves in every case; writes nothing to the client. An undrained request is paused, without our listeners.
     * @throws TypeError when the request id cannot be sent @param hooks.carried the request's trace
     * @param hooks.beforeRead not called if the headers are refused
     */
    async send(
      client: UploadClient,
      requestId: string,
      hooks: { beforeRead(): void; pieceRead?(): void; carried?: Carried | undefined },
    ): Promise<UploadOutcome> {
      const { req } = client;
      validateHeaderValue("x-request-id", requestId);
      const boundary = formBoundary(req.headers);
      if (typeof boundary !== "string") return { outcome: "refused", refusal: boundary };
      if (req.destroyed || req.socket.destroyed) return { outcome: "client_gone" };
      const form = formOf(dialect);
      if ("outcome" in form) return form;
      hooks.beforeRead();
      const { carried, pieceRead } = hooks;
      return new Promise((resolve) =>
        tunnel({ client, requestId, carried, pieceRead, boundary, target, options, form, dialect, resolve }),
      );
    },
    close: (): void => agent.destroy(),
  };
}

const NOT_SUPPORTED = refuse("path_not_found", {
  text: "Image upload is not available; use an imageUrl that is reachable from the internet",
});

function formOf(dialect: Dialect): CheckedForm | UploadOutcome {
  const { adapter, options } = dialect;
  if (adapter.upload === undefined) return { outcome: "refused", refusal: NOT_SUPPORTED };
  const form = dialect.call("upload", "", () => checkForm(adapter.upload!(options, randomUUID())));
  return "outcome" in form ? { outcome: "upstream_failed", detail: form.detail } : form;
}

interface Upload {
  client: UploadClient;
  requestId: string;
  carried: Carried | undefined;
  pieceRead: (() => void) | undefined;
  boundary: string;
  target: UploadTarget;
  options: UploadOptions;
  form: CheckedForm;
  dialect: Dialect;
  resolve(outcome: UploadOutcome): void;
}

/** Connects the client's form to the upstream's request. The first outcome counts; then both ends are released. */
function tunnel(upload: Upload): void {
  const { client, requestId, carried, boundary, target, options, form, dialect, resolve } = upload;
  let settled = false;
  let complete = false;
  let upstream: UploadRequest | undefined;
  let answerTimer: NodeJS.Timeout | undefined;

  const settle = (outcome: UploadOutcome) => {
    if (settled) return;
    settled = true;
    clearTimeout(totalTimer);
    clearTimeout(answerTimer);
    body.stop();
    upstream?.release();
    resolve(outcome);
  };
  const failed = (detail: string) => settle({ outcome: "upstream_failed", detail });
  const late = (detail: string) => settle({ outcome: "upstream_timeout", detail });
  const answer = (received: Answer) => {
    carried?.answered?.(received.status);
    const outcome = interpretAnswer(received, dialect);
    if (outcome.outcome === "answered" && !complete)
      failed("success was answered before the form was complete");
    else settle(outcome);
  };
  const totalTimer = setTimeout(() => {
    if (body.waitsForClient()) settle({ outcome: "refused", refusal: refuse("request_timeout") });
    else late(`no outcome after ${options.totalTimeoutMs} ms`);
  }, options.totalTimeoutMs);

  const body = readUpload(client.req, boundary, options, {
    image: (type) => {
      upstream = openUpload(client, target, type, namesOf(requestId, carried), { answer, failed }, form);
      return upstream.file;
    },
    whole: () => {
      complete = true;
      upstream?.complete();
      const wait = options.headersTimeoutMs;
      answerTimer = setTimeout(() => late(`no answer ${wait} ms after the form`), wait);
    },
    refused: (refusal) => settle({ outcome: "refused", refusal }),
    gone: () => settle({ outcome: "client_gone" }),
    piece: () => upload.pieceRead?.(),
  });
}

function namesOf(requestId: string, carried: Carried | undefined): Record<string, string> {
  const names: Record<string, string> = { "x-request-id": requestId };
  const lines = carried?.headers ?? [];
  for (let at = 0; at < lines.length; at += 2) names[lines[at]!] = lines[at + 1]!;
  return names;
}

/** RFC 2046, 5.1.1: 1 to 70 characters of this set, the last not a space. */
const BOUNDARY = /^[0-9A-Za-z'()+_,\-./:=? ]{0,69}[0-9A-Za-z'()+_,\-./:=?]$/;

/** Longer media types are refused unread: Node's time grows with the square of the spaces in one. */
const TYPE_CHARS_MAX = 256;

/** The boundary of a request that may be read as a form, or why it may not, by its headers alone. */
export function formBoundary(headers: IncomingHttpHeaders): string | Refusal {
  if (!isIdentity(headers["content-encoding"])) return wrongMedia("Content-Encoding is not supported");
  const type = mediaType(headers["content-type"]);
  if (type?.essence !== "multipart/form-data") return wrongMedia("Content-Type must be multipart/form-data");
  const boundary = type.params.get("boundary");
  if (boundary === null) return invalidForm("", "Content-Type must name the boundary of the form");
  if (!BOUNDARY.test(boundary))
    return invalidForm("", "boundary must be 1 to 70 of the characters in RFC 2046");
  const length = Number(headers["content-length"] ?? 0);
  return length > UPLOAD_BYTES_MAX ? fileTooLarge() : boundary;
}

function mediaType(header: string | undefined): MIMEType | undefined {
  try {
    return header === undefined || header.length > TYPE_CHARS_MAX ? undefined : new MIMEType(header);
  } catch {
    return undefined;
  }
}

export type UploadOutcome =
  /** A success with an HTTPS URL and its expiry in UTC; `data` is all of the upstream's data, including these two. */
  | { outcome: "answered"; url: string; expiresAt: string; data: Record<string, unknown> }
  /** The client's request was invalid; no complete upload reached the upstream. */
  | { outcome: "refused"; refusal: Refusal }
  | { outcome: "upstream_refused"; status: number; code: number; text: string; detail: string }
  | { outcome: "upstream_rate_limited"; retryAfterSeconds: number | undefined; detail: string }
  /** The fault is our credential, account or config; never the customer's. */
  | { outcome: "refused_gateway"; detail: string }
  | { outcome: "upstream_failed"; detail: string }
  | { outcome: "upstream_timeout"; detail: string }
  | { outcome: "client_gone" };

/** Promised by the API, for an upstream that does not say when its address ends. */
const IMAGE_LIFETIME_MS = 5 * 60_000;

export function interpretAnswer(answer: Answer, dialect: Dialect): UploadOutcome {
  const json = parseObject(answer.body);
  const { adapter, options } = dialect;
  const described = () => describeAnswer(answer, json);
  const outcome = dialect.call("uploaded", "", (): UploadOutcome => {
    if (adapter.uploaded === undefined) throw new AdapterMistake("is missing");
    const uploaded: Uploaded = returned(adapter.uploaded(responseOf(answer, json), options));
    switch (uploaded.outcome) {
      case "uploaded":
        return imageOf(uploaded);
      case "failed":
        return failed(uploaded.why === undefined ? described() : excerptOf(uploaded.why, ""));
      default:
        return refusedUpload(readRejection(uploaded, answer, described()));
    }
  });
  return outcome.outcome === "adapter_fault" ? failed(`${outcome.detail}; ${described()}`) : outcome;
}

const failed = (detail: string): UploadOutcome => ({ outcome: "upstream_failed", detail });

function refusedUpload(rejection: ReturnType<typeof readRejection>): UploadOutcome {
  switch (rejection.outcome) {
    case "rate_limited":
      return { ...rejection, outcome: "upstream_rate_limited" };
    case "refused_gateway":
      return rejection;
    case "refused":
      return { ...rejection, outcome: "upstream_refused" };
  }
}

function imageOf({ url, expiresAt, data = {} }: Extract<Uploaded, { outcome: "uploaded" }>): UploadOutcome {
  // A URI is ASCII (RFC 3986), and an imageUrl must pass isHttpsUrl.
  if (typeof url !== "string" || !/^[!-~]+$/.test(url) || !isHttpsUrl(url))
    throw new AdapterMistake("returned an upload without an https url");
  if (!isObject(data)) throw new AdapterMistake("returned data of an upload that are no object");
  return { outcome: "answered", url, expiresAt: expiryOf(expiresAt), data };
}

function expiryOf(expiresAt: unknown): string {
  if (expiresAt === undefined) return new Date(Date.now() + IMAGE_LIFETIME_MS).toISOString();
  const time = utcTime(expiresAt);
  if (time === undefined) throw new AdapterMistake("returned an upload with an expiry that is no time");
  return time;
}
