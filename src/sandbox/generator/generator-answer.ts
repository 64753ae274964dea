import { type ServerResponse, STATUS_CODES } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import type { Answering } from "./behaviour.ts";

export interface SandboxAnswer {
  status: number;
  headers: Record<string, string>;
  body: string | Buffer;
}

export function success(data: object, status: number): SandboxAnswer {
  return json(status, { code: 200, msg: "success", data });
}

export interface Failure {
  status: number;
  message: string;
  /** As `status` if left out. */
  code?: number;
  retryAfterSeconds?: number;
  /** Somebody has asked for this status. */
  isSteered?: boolean;
}

export function failure({ status, message, code = status, retryAfterSeconds = 0 }: Failure): SandboxAnswer {
  const wait = retryAfterSeconds > 0 ? { retryAfter: retryAfterSeconds } : {};
  const answer = json(status, { code, msg: message, error: message, ...wait });
  if (retryAfterSeconds > 0) answer.headers["retry-after"] = String(retryAfterSeconds);
  return answer;
}

export function json(status: number, value: object): SandboxAnswer {
  return { status, headers: { "content-type": "application/json" }, body: JSON.stringify(value) };
}

export function steeredFailure(how: Answering): Failure | undefined {
  const { status, retryAfterSeconds } = how;
  const code = how.code || status;
  if (status < 300 && (how.code === 0 || code === 200)) return undefined;
  return { status, message: how.message || textOf(status), code, retryAfterSeconds, isSteered: true };
}

export const textOf = (status: number): string => STATUS_CODES[status] ?? "Error";

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
