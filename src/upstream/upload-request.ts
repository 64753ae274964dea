import { randomUUID } from "node:crypto";
import { type Agent, IncomingMessage, type OutgoingHttpHeaders, ServerResponse } from "node:http";
import { Socket } from "node:net";
import { Stream } from "node:stream";
import { createProxyServer } from "http-proxy-3";
import type { ImageType } from "../core/images.ts";
import { withoutSecret } from "./secret.ts";
import type { UpstreamAnswer } from "./upload-answer.ts";
import type { FileSink } from "./upload-form.ts";

/** Longest answer that is read. */
export const ANSWER_BYTES_MAX = 65_536;

export interface UpstreamTarget {
  /** Base URL; its path is put before `/api/v1/upload`. */
  url: URL;
  agent: Agent;
  apiKey: string | undefined;
  /** Longest wait for a new connection, TLS included. */
  connectTimeoutMs: number;
}

export interface UpstreamRequestEvents {
  answer(answer: UpstreamAnswer): void;
  /** No connection, reset, garbage, too long an answer: in words, for the log. */
  failed(detail: string): void;
}

/** One POST to the upstream. It stays incomplete until `complete`, so that nothing comes of it before. */
export interface UpstreamRequest {
  /** Takes the bytes of the file, nothing else. */
  file: FileSink;
  /** Writes the closing boundary. */
  complete(): void;
  /** Breaks the request off. One that is over in both directions has given its connection back already. */
  release(): void;
}

const TYPES: Readonly<Record<ImageType, string>> = {
  "image/jpeg": "jpg",
  "image/png": "png",
  "image/webp": "webp",
  "image/gif": "gif",
};

/**
 * Opens the request and sends the head of its only part. Events come later than the return.
 * @param names headers that name the request
 */
export function openUpload(
  target: UpstreamTarget,
  type: ImageType,
  names: Readonly<Record<string, string>>,
  on: UpstreamRequestEvents,
): UpstreamRequest {
  const boundary = `tollgate-${randomUUID()}`;
  const { incoming, response } = standIns({
    "content-type": `multipart/form-data; boundary=${boundary}`,
    accept: "application/json",
    "accept-encoding": "identity",
    ...names,
    ...(target.apiKey === undefined ? {} : { authorization: `Bearer ${target.apiKey}` }),
  });
  let responding = false;
  // One proxy for each upload: its events do not say which request they are about.
  const proxy = createProxyServer({ agent: target.agent, selfHandleResponse: true });
  proxy.on("proxyReq", (proxyReq, _req, _res, _options, socket) => {
    proxyReq.once("close", () => {
      if (!responding) on.failed("connection closed without an answer");
    });
    limitConnect(socket, target);
  });
  proxy.on("proxyRes", (proxyRes) => {
    responding = true;
    readAnswer(proxyRes, withoutSecret(target.apiKey), on);
  });
  const request = requestOf((buffer) =>
    proxy.web(incoming, response, { target: target.url, buffer }, (error) => on.failed(inWords(error))),
  );
  request.write(
    `--${boundary}\r\nContent-Disposition: form-data; name="file"; filename="upload.${TYPES[type]}"\r\n` +
      `Content-Type: ${type}\r\n\r\n`,
  );
  return {
    file: {
      write: (bytes) => request.write(bytes, (error) => error ?? giveBack(bytes)),
      onDrain: (listener) => void request.on("drain", listener),
    },
    complete: () => void request.end(`\r\n--${boundary}--\r\n`),
    // http-proxy-3 destroys its request when the response closes early, also while that waits for a socket.
    release: () => void response.emit("close"),
  };
}

/** What http-proxy-3 takes for the client's request and response: nothing of the client's own can get through. */
function standIns(headers: OutgoingHttpHeaders): { incoming: IncomingMessage; response: ServerResponse } {
  const incoming = new IncomingMessage(new Socket());
  incoming.method = "POST";
  incoming.url = "/api/v1/upload";
  Object.assign(incoming.headers, headers);
  return { incoming, response: new ServerResponse(incoming) };
}

/** The request that http-proxy-3 would pipe a body into. Written to directly, it tells when bytes have left. */
function requestOf(send: (body: Stream) => void): NodeJS.WritableStream {
  let request: NodeJS.WritableStream | undefined;
  const pipe = <T extends NodeJS.WritableStream>(to: T): T => {
    request = to;
    return to;
  };
  send(Object.assign(new Stream(), { pipe }));
  if (request === undefined) throw new Error("http-proxy-3 made no request");
  return request;
}

/**
 * Frees the memory of bytes that have left, where it is theirs alone. Left to the garbage collector, it makes that go
 * through the whole heap for every third upload. Decision 0025.
 */
function giveBack(bytes: Buffer): void {
  if (bytes.length === bytes.buffer.byteLength && bytes.buffer instanceof ArrayBuffer)
    bytes.buffer.transfer(0);
}

function limitConnect(socket: Socket, { url, connectTimeoutMs }: UpstreamTarget): void {
  if (!socket.connecting) return;
  const timer = setTimeout(() => socket.destroy(new Error("connect timeout")), connectTimeoutMs);
  const clear = () => clearTimeout(timer);
  socket.once(url.protocol === "https:" ? "secureConnect" : "connect", clear).once("close", clear);
}

function readAnswer(
  response: IncomingMessage,
  clean: (text: string) => string,
  on: UpstreamRequestEvents,
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
      text: clean(Buffer.concat(chunks).toString("utf8")),
    });
  });
  response.on("error", (error) => on.failed(`answer cut short: ${inWords(error)}`));
}

/** AggregateError, which a failed connection to several addresses gives, has no message of its own. */
function inWords(error: Error & { code?: string }): string {
  return error.message || error.code || error.name;
}
