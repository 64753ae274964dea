import { randomUUID } from "node:crypto";
import type { IncomingMessage } from "node:http";
import busboy from "busboy";

const FILE_BYTES_MAX = 10 * 1024 * 1024;
const TOTAL_BYTES_MAX = 256 * 1024 * 1024;

export interface UploadedFile {
  name: string;
  type: string;
  bytes: Buffer;
}

export type UploadStore = ReturnType<typeof createUploadStore>;

export function createUploadStore(now: () => number, keptMs: number) {
  const files = new Map<string, UploadedFile & { expiresAtMs: number }>();
  let totalBytes = 0;

  function collect(): void {
    for (const [path, file] of files) {
      if (file.expiresAtMs > now() && totalBytes <= TOTAL_BYTES_MAX) return;
      files.delete(path);
      totalBytes -= file.bytes.length;
    }
  }

  return {
    add(file: UploadedFile): { path: string; expiresAtMs: number } {
      const extension = /^image\/(jpeg|png|webp|gif)$/.exec(file.type)?.[1] ?? "bin";
      const path = `/files/${randomUUID()}.${extension}`;
      const expiresAtMs = now() + keptMs;
      files.set(path, { ...file, expiresAtMs });
      totalBytes += file.bytes.length;
      collect();
      return { path, expiresAtMs };
    },
    find(path: string): UploadedFile | undefined {
      collect();
      return files.get(path);
    },
  };
}

interface Form {
  /** Undefined without such a part, or above 10 MB. */
  file: UploadedFile | undefined;
  fields: Record<string, string>;
}

/** @throws for a malformed form */
export function readForm(request: IncomingMessage): Promise<Form> {
  return new Promise((resolve, reject) => {
    const fields: Record<string, string> = {};
    let file: UploadedFile | undefined;
    let tooLarge = false;
    const parser = busboy({
      headers: request.headers,
      limits: { fileSize: FILE_BYTES_MAX + 1, files: 1, fields: 20 },
    });
    parser.on("file", (field, stream, info) => {
      const chunks: Buffer[] = [];
      stream.on("data", (chunk: Buffer) => chunks.push(chunk));
      stream.on("limit", () => {
        tooLarge = true;
      });
      stream.on("error", reject);
      stream.on("end", () => {
        if (field === "file")
          file = { name: info.filename ?? "", type: info.mimeType, bytes: Buffer.concat(chunks) };
      });
    });
    parser.on("field", (name, value) => {
      fields[name] = value;
    });
    parser.on("error", reject);
    parser.on("close", () => resolve({ file: tooLarge ? undefined : file, fields }));
    request.on("error", reject);
    request.on("close", () => {
      if (!request.complete) reject(new Error("the upload broke off"));
    });
    request.pipe(parser);
  });
}
