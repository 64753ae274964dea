import { hash } from "node:crypto";
import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import type { GeneratorOptions, RequestNotes } from "../../src/sandbox/generator/generator-routes.ts";
import {
  type Generator as SandboxGenerator,
  startGenerator as startSandbox,
} from "../../src/sandbox/generator/server.ts";

const REQUESTS_MAX = 20_000;
const CHARACTERS_MAX = 64 * 1024 * 1024;

/** Requests to the generator under `/api/`. */
export interface RequestLog {
  method: string;
  path: string;
  headers: IncomingHttpHeaders;
  body: string;
  timeMs: number;
  complete: boolean;
  taskId?: string;
  file?: { name: string; type: string; size: number; sha256: string };
  fields?: Record<string, string>;
}

export interface Generator extends SandboxGenerator {
  requests: RequestLog[];
}

/** The sandbox's generator, which here remembers its requests. @throws when a port is taken (`EADDRINUSE`) */
export async function startGenerator(options: Omit<GeneratorOptions, "record"> = {}): Promise<Generator> {
  const { requests, record } = createRecorder();
  return { ...(await startSandbox({ ...options, record })), requests };
}

function createRecorder() {
  const requests: RequestLog[] = [];
  let characters = 0;

  function dropOlderHalf(): void {
    requests.splice(0, Math.ceil(requests.length / 2));
    characters = requests.reduce((sum, entry) => sum + entry.body.length, 0);
  }

  return {
    requests,
    record(request: IncomingMessage, timeMs: number): RequestNotes {
      if (requests.length >= REQUESTS_MAX) dropOlderHalf();
      const { method = "", url = "", headers } = request;
      const entry: RequestLog = { method, path: url, headers, body: "", timeMs, complete: false };
      request.once("end", () => {
        entry.complete = true;
      });
      requests.push(entry);
      return {
        body(text) {
          entry.body = text;
          characters += text.length;
          if (characters > CHARACTERS_MAX) dropOlderHalf();
        },
        task(id) {
          entry.taskId = id;
        },
        upload({ name, type, bytes }, fields) {
          entry.file = { name, type, size: bytes.length, sha256: hash("sha256", bytes) };
          entry.fields = fields;
        },
      };
    },
  };
}
