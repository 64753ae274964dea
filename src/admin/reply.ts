import type { IncomingMessage, ServerResponse } from "node:http";
import { promisify } from "node:util";
import { gzip } from "node:zlib";

export interface Reply {
  status: number;
  body?: string | Buffer;
  headers?: Record<string, string>;
}

export const text = (status: number, line: string, headers: Record<string, string> = {}): Reply => ({
  status,
  body: `${line}\n`,
  headers: { "Content-Type": "text/plain; charset=utf-8", ...headers },
});

export const json = (status: number, value: object, headers: Record<string, string> = {}): Reply => ({
  status,
  body: `${JSON.stringify(value)}\n`,
  headers: { "Content-Type": "application/json", ...headers },
});

const GZIP = /(?:^|,)\s*gzip\s*(?:;(?!\s*q=0(?:\.0*)?\s*(?:,|$))[^,]*)?(?:,|$)/i;
const COMPRESSED_BYTES_MIN = 1200;
const compress = promisify(gzip);

export async function compressed(req: IncomingMessage, reply: Reply): Promise<Reply> {
  const { body = "", headers } = reply;
  if (body.length < COMPRESSED_BYTES_MIN || !GZIP.test(String(req.headers["accept-encoding"] ?? "")))
    return reply;
  return { ...reply, body: await compress(body), headers: { ...headers, "Content-Encoding": "gzip" } };
}

/** Sends a reply that must not be cached. The unread rest of a refused request is dropped. */
export function send(res: ServerResponse, { status, body, headers }: Reply): void {
  res.writeHead(status, { "Cache-Control": "no-store", ...headers });
  res.end(body);
  if (!res.req.complete) res.req.resume();
}

/** A larger one is read to its end all the same: to leave early would break the connection before the answer. @returns undefined when it is larger */
export async function readBody(req: IncomingMessage, bytesMax: number): Promise<Buffer | undefined> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of req as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes <= bytesMax) chunks.push(chunk);
  }
  return bytes <= bytesMax ? Buffer.concat(chunks) : undefined;
}
