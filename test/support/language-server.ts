import { spawn } from "node:child_process";
import { once } from "node:events";
import { basename, dirname, resolve } from "node:path";
import type { Readable } from "node:stream";
import { pathToFileURL } from "node:url";

const SERVER = resolve(
  import.meta.dirname,
  "../../node_modules/yaml-language-server/bin/yaml-language-server",
);

/** The parts of the protocol's answers that tests read. Positions count from 0. */
export interface Diagnostic {
  message: string;
  range: { start: { line: number; character: number } };
}

interface Message {
  id?: number;
  method?: string;
  params?: unknown;
  result?: unknown;
  error?: { message: string };
}

/** Calls back with each message of a stream, once it is whole. */
function onMessages(stream: Readable, take: (message: Message) => void): void {
  let buffer = Buffer.alloc(0);
  stream.on("data", (chunk: Buffer) => {
    buffer = Buffer.concat([buffer, chunk]);
    for (;;) {
      const head = buffer.indexOf("\r\n\r\n");
      const length = Number(
        /Content-Length: (\d+)/i.exec(buffer.subarray(0, Math.max(0, head)).toString())?.[1],
      );
      if (head < 0 || buffer.length < head + 4 + length) return;
      const text = buffer.subarray(head + 4, head + 4 + length).toString();
      buffer = buffer.subarray(head + 4 + length);
      take(JSON.parse(text));
    }
  });
}

/** The real YAML language server over its standard input and output, as an editor starts it. */
export async function startLanguageServer() {
  const child = spawn(process.execPath, [SERVER, "--stdio"], { stdio: ["pipe", "pipe", "inherit"] });
  const waiting = new Map<number, PromiseWithResolvers<unknown>>();
  const published = new Map<string, { diagnostics: Diagnostic[]; firstDiagnosed?: () => void }>();
  let ids = 0;

  const send = (message: object): void => {
    const text = JSON.stringify({ jsonrpc: "2.0", ...message });
    child.stdin.write(`Content-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`);
  };
  const request = (method: string, params: unknown): Promise<unknown> => {
    const answer = Promise.withResolvers<unknown>();
    waiting.set(++ids, answer);
    send({ id: ids, method, params });
    return answer.promise;
  };

  function take(message: Message): void {
    if (message.method === undefined) {
      const answer = waiting.get(message.id ?? 0);
      if (message.error) answer?.reject(new Error(message.error.message));
      else answer?.resolve(message.result);
    } else if (message.id !== undefined) {
      send({ id: message.id, result: null });
    } else if (message.method === "textDocument/publishDiagnostics") {
      const { uri, diagnostics } = message.params as { uri: string; diagnostics: Diagnostic[] };
      const { firstDiagnosed } = published.get(uri) ?? {};
      published.set(uri, { diagnostics });
      firstDiagnosed?.();
    }
  }

  onMessages(child.stdout, take);
  const capabilities = {
    textDocument: { completion: { completionItem: { documentationFormat: ["markdown"] } } },
  };
  await request("initialize", { processId: process.pid, rootUri: null, capabilities });
  send({ method: "initialized", params: {} });
  // Nothing from the network: the schema is the one that the file names.
  const yaml = { validate: true, hover: true, completion: true, schemaStore: { enable: false } };
  send({ method: "workspace/didChangeConfiguration", params: { settings: { yaml } } });

  return {
    /**
     * Opens a text as if it were a file beside this one, and waits for what is wrong with it. Each text has a name of its own: the
     * server may check an open file again, and does not say which text it means.
     */
    async open(file: string, text: string) {
      const uri = pathToFileURL(resolve(dirname(file), `${++ids}-${basename(file)}`)).href;
      const firstDiagnosed = new Promise<void>((done) =>
        published.set(uri, { diagnostics: [], firstDiagnosed: done }),
      );
      const textDocument = { uri, languageId: "yaml", version: ++ids, text };
      send({ method: "textDocument/didOpen", params: { textDocument } });
      await firstDiagnosed;
      const at = (line: number, character: number) => ({
        textDocument: { uri },
        position: { line, character },
      });
      return {
        diagnostics: published.get(uri)?.diagnostics ?? [],
        completion: async (line: number, character: number) =>
          (await request("textDocument/completion", at(line, character))) as {
            items: { label: string; documentation?: unknown; insertText?: string }[];
          },
        hover: async (line: number, character: number) =>
          (await request("textDocument/hover", at(line, character))) as { contents: unknown } | null,
      };
    },
    async stop(): Promise<void> {
      const ended = once(child, "close");
      child.kill();
      await ended;
    },
  };
}
