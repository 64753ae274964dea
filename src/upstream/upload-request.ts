import { randomUUID } from "node:crypto";
import type { Agent, ClientRequest, IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { PassThrough } from "node:stream";
import { createProxyServer } from "http-proxy-3";
import { type Answer, withoutSecret } from "./answer.ts";
import type { CheckedForm } from "./dialect.ts";
import { INTERIM_ANSWERS_MAX, tooManyInterim } from "./json-client.ts";
import type { FileSink, ImageType } from "./upload-form.ts";

export const ANSWER_BYTES_MAX = 65_536;

export interface UploadTarget {
  /** Base URL; its path is put before the form's. */
  url: URL;
  agent: Agent;
  apiKey: string | undefined;
  /** Flat name, value pairs that authenticate and name the gateway. */
  ownHeaders: readonly string[];
  connectTimeoutMs: number;
}

interface UploadRequestEvents {
  answer(answer: Answer): void;
  /** No connection, a reset, an invalid or too long answer; `detail` is for the log. */
  failed(detail: string): void;
}

/** One POST to the upstream. It stays incomplete until `complete`, so that the upstream cannot accept it before. */
export interface UploadRequest {
  file: FileSink;
  complete(): void;
  /** Aborts the request, unless it is complete in both directions and has returned its connection. */
  release(): void;
}

const TYPES: Readonly<Record<ImageType, string>> = {
  "image/jpeg": "jpg",
  "image/png": "png",
  "image/webp": "webp",
  "image/gif": "gif",
};

/** The client's side of an upload. Its headers are replaced: none of the client's own is sent on. */
export interface UploadClient {
  req: IncomingMessage;
  res: ServerResponse;
}

/** Sends the form up to the file's bytes. Events come after the return. @param names headers that identify the request */
export function openUpload(
  { req, res }: UploadClient,
  target: UploadTarget,
  type: ImageType,
  names: Readonly<Record<string, string>>,
  on: UploadRequestEvents,
  { path, headers, fields, fileField }: CheckedForm,
): UploadRequest {
  const boundary = `tollgate-${randomUUID()}`;
  req.headers = {
    "content-type": `multipart/form-data; boundary=${boundary}`,
    accept: "application/json",
    "accept-encoding": "identity",
    ...names,
    ...byName(target.ownHeaders),
    ...byName(headers),
  };
  const form = createFormWriter();
  let responding = false;
  // One proxy for each upload, since its events do not tell which upload they belong to.
  const proxy = createProxyServer({ agent: target.agent, selfHandleResponse: true, ignorePath: true });
  proxy.on("proxyReq", (proxyReq, _req, _res, _options, socket) => {
    proxyReq.once("close", () => {
      if (!responding) on.failed("connection closed without an answer");
    });
    let interim = 0;
    proxyReq.on("information", () => {
      if (++interim > INTERIM_ANSWERS_MAX) proxyReq.destroy(tooManyInterim());
    });
    limitConnect(socket, target);
    form.attach(proxyReq);
  });
  proxy.on("proxyRes", (proxyRes) => {
    responding = true;
    readAnswer(proxyRes, withoutSecret(target.apiKey), on);
  });
  // The body is written to the request itself, whose callback tells when the kernel has each chunk; `buffer` stays empty.
  const options = { target: uploadUrl(target.url, path), buffer: new PassThrough() };
  proxy.web(req, res, options, (error) => on.failed(describeError(error)));
  const part = (name: string): string => `--${boundary}\r\nContent-Disposition: form-data; name="${name}"`;
  const before = fields.map(([name, value]) => `${part(name)}\r\n\r\n${value}\r\n`).join("");
  const head = `${part(fileField)}; filename="upload.${TYPES[type]}"\r\nContent-Type: ${type}\r\n\r\n`;
  form.write(Buffer.from(before + head));
  return {
    file: { write: form.write, onDrain: form.onDrain },
    complete: () => form.end(Buffer.from(`\r\n--${boundary}--\r\n`)),
    release: form.destroy,
  };
}

const uploadUrl = ({ origin, pathname }: URL, path: string): URL =>
  new URL(origin + pathname.replace(/\/$/, "") + path);

function byName(flat: readonly string[]): Record<string, string> {
  const headers: Record<string, string> = {};
  for (let at = 0; at < flat.length; at += 2) headers[flat[at]!] = flat[at + 1]!;
  return headers;
}

/** Writes a body to a request that gets its connection later; until then it reports back pressure. */
function createFormWriter() {
  let request: ClientRequest | undefined;
  let pending: Buffer[] = [];
  let ended = false;
  let destroyed = false;
  let drained = (): void => undefined;

  const send = (to: ClientRequest, bytes: Buffer): boolean =>
    to.write(bytes, (error) => error ?? freeMemory(bytes));
  return {
    attach(to: ClientRequest): void {
      request = to;
      if (destroyed) {
        to.destroy();
        return;
      }
      const isFull = pending.map((bytes) => send(to, bytes)).includes(false);
      pending = [];
      if (ended) to.end();
      to.on("drain", () => drained());
      if (!isFull) drained();
    },
    write(bytes: Buffer): boolean {
      if (request) return send(request, bytes);
      pending.push(bytes);
      return false;
    },
    onDrain(listener: () => void): void {
      drained = listener;
    },
    end(bytes: Buffer): void {
      ended = true;
      if (request) request.end(bytes);
      else pending.push(bytes);
    },
    destroy(): void {
      destroyed = true;
      pending = [];
      request?.destroy();
    },
  };
}

/** Left to the garbage collector, sent bytes cause a full collection for every third upload. Decision 0025. */
function freeMemory(bytes: Buffer): void {
  if (bytes.length === bytes.buffer.byteLength && bytes.buffer instanceof ArrayBuffer)
    bytes.buffer.transfer(0);
}

function limitConnect(socket: Socket, { url, connectTimeoutMs }: UploadTarget): void {
  if (!socket.connecting) return;
  const timer = setTimeout(() => socket.destroy(new Error("connect timeout")), connectTimeoutMs);
  const clear = () => clearTimeout(timer);
  socket.once(url.protocol === "https:" ? "secureConnect" : "connect", clear).once("close", clear);
}

function readAnswer(
  response: IncomingMessage,
  clean: (text: string) => string,
  on: UploadRequestEvents,
): void {
  const chunks: Buffer[] = [];
  let bytes = 0;
  response.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > ANSWER_BYTES_MAX) on.failed(`answer longer than ${ANSWER_BYTES_MAX} bytes`);
    else chunks.push(chunk);
  });
  response.on("end", () => {
    on.answer({
      status: response.statusCode ?? 0,
      retryAfter: response.headers["retry-after"],
      body: clean(Buffer.concat(chunks).toString("utf8")),
    });
  });
  response.on("error", (error) => on.failed(`answer cut short: ${describeError(error)}`));
}

/** A failed connection to several addresses is an AggregateError, which has no message of its own. */
function describeError(error: Error & { code?: string }): string {
  return error.message || error.code || error.name;
}
