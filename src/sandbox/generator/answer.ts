import { type ServerResponse, STATUS_CODES } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import type { Answering } from "./behaviour.ts";

export interface SandboxAnswer {
  status: number;
  headers: Record<string, string>;
  body: string | Buffer;
}

export function success(data: object, status = 200): SandboxAnswer {
  return json(status, { code: 200, msg: "success", data });
}

export function failure(status: number, message = "", code = 0, retryAfterSeconds = 0): SandboxAnswer {
  const text = message || (STATUS_CODES[status] ?? "Error");
  const wait = retryAfterSeconds > 0 ? { retryAfter: retryAfterSeconds } : {};
  const answer = json(status, { code: code || status, msg: text, error: text, ...wait });
  if (retryAfterSeconds > 0) answer.headers["retry-after"] = String(retryAfterSeconds);
  return answer;
}

export function json(status: number, value: object): SandboxAnswer {
  return { status, headers: { "content-type": "application/json" }, body: JSON.stringify(value) };
}

export function steeredFailure(how: Answering): SandboxAnswer | undefined {
  const code = how.code || how.status;
  if (how.status < 300 && (how.code === 0 || code === 200)) return undefined;
  return failure(how.status, how.message, code, how.retryAfterSeconds);
}

export async function send(response: ServerResponse, answer: SandboxAnswer, how: Answering): Promise<void> {
  if (how.delayMs > 0) await pause(response, how.delayMs);
  if (response.destroyed) return;
  const body = Buffer.from(answer.body);
  const headers = { ...answer.headers, "content-length": String(body.length) };
  switch (how.fault) {
    case "none":
      response.writeHead(answer.status, headers).end(body);
      return;
    case "hang":
      return;
    case "reset":
      response.socket?.resetAndDestroy();
      return;
    case "truncate":
      response.writeHead(answer.status, headers).write(body.subarray(0, body.length >> 1), () => {
        response.destroy();
      });
      return;
    case "garbage":
      response.writeHead(200, { "content-type": "text/html" }).end("<!doctype html><title>Oops</title>");
      return;
    case "drip":
      response.writeHead(answer.status, headers);
      for (let at = 0; at < body.length && !response.destroyed; at++) {
        response.write(body.subarray(at, at + 1));
        await pause(response, how.dripMs);
      }
      response.end();
      return;
  }
}

async function pause(response: ServerResponse, ms: number): Promise<void> {
  const gone = new AbortController();
  const onClose = () => gone.abort();
  response.once("close", onClose);
  await delay(ms, undefined, { signal: gone.signal }).catch(() => {});
  response.off("close", onClose);
}
