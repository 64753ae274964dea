import { once } from "node:events";
import http, { type IncomingHttpHeaders, type IncomingMessage } from "node:http";
import net, { type AddressInfo } from "node:net";
import type { Writable } from "node:stream";
import { expect } from "vitest";
import type { FileSink } from "../../../src/upstream/upload-form.ts";
import {
  createUploadTunnel,
  type UploadOptions,
  type UploadOutcome,
} from "../../../src/upstream/upload-stream.ts";

export const BOUNDARY = "----client7MA4YWxkTrZu0gW";
export const UPLOADED = {
  code: 200,
  msg: "success",
  data: { url: "https://files.example/a.png", expires_at: "2026-01-01T00:05:00Z" },
};

export interface Part {
  name?: string;
  filename?: string | undefined;
  type?: string | undefined;
  /** Replaces all three. */
  head?: string;
  body: Buffer | string;
}

/** A form as browsers send it. */
export function formOf(
  parts: Part[],
  { boundary = BOUNDARY, preamble = "", epilogue = "\r\n" } = {},
): Buffer {
  const pieces: (Buffer | string)[] = [preamble];
  for (const part of parts) pieces.push(`--${boundary}\r\n${headOf(part)}\r\n\r\n`, part.body, "\r\n");
  pieces.push(`--${boundary}--`, epilogue);
  return Buffer.concat(pieces.map((piece) => (typeof piece === "string" ? Buffer.from(piece) : piece)));
}

function headOf({ head, name = "file", filename, type }: Part): string {
  if (head !== undefined) return head;
  const disposition = `Content-Disposition: form-data; name="${name}"`;
  return [
    filename === undefined ? disposition : `${disposition}; filename="${filename}"`,
    ...(type === undefined ? [] : [`Content-Type: ${type}`]),
  ].join("\r\n");
}

/** The form that should pass. */
export function imageForm(body: Buffer, type: string | undefined = "image/png"): Buffer {
  return formOf([{ filename: "cat.png", type, body }]);
}

/** Where a form's file can go, if not to an upstream. */
export function sinkInto(stream: Writable): FileSink {
  return {
    write: (bytes) => stream.write(bytes),
    onDrain: (listener) => void stream.on("drain", listener),
  };
}

const open: (() => Promise<void> | void)[] = [];

/** Closes what the test opened. For `afterEach`. */
export async function closeStage(): Promise<void> {
  for (const close of open.splice(0).reverse()) await close();
  expect(leaks.splice(0)).toEqual([]);
}

/** Listeners that a tunnel left on a client's request or connection. */
const leaks: string[] = [];

function listenersOf(req: IncomingMessage): string {
  const onRequest = ["data", "end", "close", "aborted", "readable"].map((event) => req.listenerCount(event));
  const onSocket = ["data", "end", "close", "error", "drain"].map((event) => req.socket.listenerCount(event));
  return `${onRequest} and ${onSocket}`;
}

export interface Received {
  method: string | undefined;
  url: string | undefined;
  headers: IncomingHttpHeaders;
  body: Buffer;
  /** The request ended as HTTP says, not by a broken connection. */
  complete: boolean;
}

type Answer = (req: IncomingMessage, res: http.ServerResponse) => void;

/** A fake upstream. By default it reads the body, then answers as the real one; `received` fills as requests end. */
export async function givenUpstream(answer: Answer = readThenAnswer) {
  const received: Received[] = [];
  let connections = 0;
  const server = http.createServer((req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("error", () => {});
    req.on("close", () => {
      const { method, url, headers, complete } = req;
      received.push({ method, url, headers, body: Buffer.concat(chunks), complete });
    });
    answer(req, res);
  });
  server.on("connection", () => connections++);
  const port = await listen(server);
  open.push(async () => {
    server.closeAllConnections();
    server.close();
    await once(server, "close");
  });
  const count = () =>
    new Promise<number>((resolve, reject) =>
      server.getConnections((error, n) => (error ? reject(error) : resolve(n))),
    );
  return { url: `http://127.0.0.1:${port}`, received, opened: () => connections, connected: count };
}

function readThenAnswer(req: IncomingMessage, res: http.ServerResponse): void {
  req.on("end", () => res.setHeader("content-type", "application/json").end(JSON.stringify(UPLOADED)));
}

/** A fake upstream below HTTP. */
export async function givenRawUpstream(onConnection: (socket: net.Socket) => void): Promise<{ url: string }> {
  const sockets = new Set<net.Socket>();
  const server = net.createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    onConnection(socket);
  });
  const port = await listen(server);
  open.push(async () => {
    for (const socket of sockets) socket.destroy();
    server.close();
    await once(server, "close");
  });
  return { url: `http://127.0.0.1:${port}` };
}

/** A gateway with nothing but the tunnel: it answers the outcome as JSON and drains the rest of the request. */
export async function givenGateway(url: string, overrides: Partial<UploadOptions> = {}) {
  const tunnel = createUploadTunnel({
    url,
    apiKey: "upstream-secret",
    connectTimeoutMs: 2_000,
    headersTimeoutMs: 5_000,
    totalTimeoutMs: 10_000,
    idleTimeoutMs: 5_000,
    minBytesPerSecond: 0,
    connections: 4,
    keepAliveTimeoutMs: 4_000,
    ...overrides,
  });
  const outcomes: UploadOutcome[] = [];
  const requests: IncomingMessage[] = [];
  let reads = 0;
  const waiting: ((outcome: UploadOutcome) => void)[] = [];
  const server = http.createServer(async (req, res) => {
    requests.push(req);
    const before = listenersOf(req);
    const outcome = await tunnel.send({ req, res }, "req-1", { beforeRead: () => reads++ });
    if (listenersOf(req) !== before) leaks.push(`${outcome.outcome}: ${before} became ${listenersOf(req)}`);
    if (req.readableFlowing && !req.readableEnded && !req.destroyed)
      leaks.push(`${outcome.outcome}: the body still flows`);
    outcomes.push(outcome);
    waiting.shift()?.(outcome);
    res.end(JSON.stringify(outcome));
    req.resume();
  });
  server.on("clientError", (_error, socket) => socket.destroy());
  const port = await listen(server);
  open.push(async () => {
    server.closeAllConnections();
    server.close();
    tunnel.close();
    await once(server, "close");
  });
  const nextOutcome = () => new Promise<UploadOutcome>((resolve) => waiting.push(resolve));
  return { port, tunnel, outcomes, requests, reads: () => reads, nextOutcome };
}

export type Gateway = Awaited<ReturnType<typeof givenGateway>>;

/** Opens an upload whose body the test writes itself. */
export function openPost({ port }: Gateway, headers: http.OutgoingHttpHeaders = {}): http.ClientRequest {
  const req = http.request({
    port,
    host: "127.0.0.1",
    method: "POST",
    path: "/api/v1/upload",
    agent: false,
    headers: { "content-type": `multipart/form-data; boundary=${BOUNDARY}`, ...headers },
  });
  req.on("error", () => {});
  return req;
}

/** Sends a whole body and gives the outcome, as the client sees it in the answer. */
export async function post(
  gateway: Gateway,
  body: Buffer,
  headers: http.OutgoingHttpHeaders = {},
): Promise<UploadOutcome> {
  const req = openPost(gateway, headers);
  const answer = new Promise<UploadOutcome>((resolve, reject) => {
    req.on("error", reject);
    req.on("response", async (res) => {
      let text = "";
      for await (const chunk of res) text += chunk;
      resolve(JSON.parse(text) as UploadOutcome);
    });
  });
  req.end(body);
  return answer;
}

/** Waits for what has no event to wait for; the test's own timeout ends it. */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setImmediate(resolve));
}

async function listen(server: net.Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}
