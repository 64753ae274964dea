import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import type { FileDigest } from "./uploads.ts";

const REQUESTS_MAX = 20_000;
const CHARACTERS_MAX = 64 * 1024 * 1024;
const BODY_BYTES_MAX = 1024 * 1024;

export interface RequestLog {
  method: string;
  path: string;
  headers: IncomingHttpHeaders;
  body: string;
  timeMs: number;
  complete: boolean;
  taskId?: string;
  file?: FileDigest;
  fields?: Record<string, string>;
}

export type RequestRecorder = ReturnType<typeof createRequestRecorder>;

export function createRequestRecorder() {
  const requests: RequestLog[] = [];
  let characters = 0;

  function dropOlderHalf(): void {
    requests.splice(0, Math.ceil(requests.length / 2));
    characters = requests.reduce((sum, entry) => sum + entry.body.length, 0);
  }

  return {
    requests,
    enter(request: IncomingMessage, timeMs: number): RequestLog {
      if (requests.length >= REQUESTS_MAX) dropOlderHalf();
      const { method = "", url = "", headers } = request;
      const entry: RequestLog = { method, path: url, headers, body: "", timeMs, complete: false };
      request.once("end", () => {
        entry.complete = true;
      });
      requests.push(entry);
      return entry;
    },
    setBody(entry: RequestLog, text: string): void {
      entry.body = text;
      characters += text.length;
      if (characters > CHARACTERS_MAX) dropOlderHalf();
    },
  };
}

/** @returns undefined when it is larger than 1 MiB */
export async function readText(request: IncomingMessage): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size <= BODY_BYTES_MAX) chunks.push(chunk);
  }
  return size <= BODY_BYTES_MAX ? Buffer.concat(chunks).toString("utf8") : undefined;
}
