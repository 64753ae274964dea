import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import type { FileDigest } from "./uploads.ts";

const REQUESTS_MAX = 20_000;
const CHARACTERS_MAX = 64 * 1024 * 1024;
const BODY_BYTES_MAX = 1024 * 1024;

/** One request under `/api/v1/`, entered when its head arrives and completed as it goes on. */
export interface RequestLog {
  method: string;
  /** As sent, with any query. */
  path: string;
  headers: IncomingHttpHeaders;
  /** JSON requests: the text as it came; empty for uploads. */
  body: string;
  /** Unix milliseconds of the generator's clock. */
  timeMs: number;
  /** True once the body was read to its end. */
  complete: boolean;
  /** Id that the answer carries, even when a fault breaks the answer. */
  taskId?: string;
  /** Uploads: what arrived. */
  file?: FileDigest;
}

export type RequestRecorder = ReturnType<typeof createRequestRecorder>;

/** Keeps what arrived, oldest first, bounded in number and in size: beyond that the older half is dropped. */
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

/**
 * Reads the body as text.
 * @returns undefined when it is larger than 1 MiB
 * @throws when the client goes away
 */
export async function readText(request: IncomingMessage): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size <= BODY_BYTES_MAX) chunks.push(chunk);
  }
  return size <= BODY_BYTES_MAX ? Buffer.concat(chunks).toString("utf8") : undefined;
}
