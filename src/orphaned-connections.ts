import type { Worker } from "node:cluster";

/** What a worker that ended had still said has been read by then. */
const LAST_WORDS_MS = 1000;

/** A connection as node:cluster hands it over: closing one twice does nothing. */
interface Handle {
  close(): void;
}

const isHandle = (sent: unknown): sent is Handle =>
  typeof sent === "object" && sent !== null && "close" in sent && typeof sent.close === "function";

/**
 * Ends the connection that a worker was given and had not taken yet when it ended. node:cluster hands a worker one
 * connection at a time and keeps it open here until the worker says that it has it; one that stalls and is killed
 * never says so, and the client would wait for ever. Must be called before the worker is given any.
 */
export function endConnectionsLeftBy(worker: Worker): void {
  let latest: Handle | undefined;
  const send = worker.process.send?.bind(worker.process) as (...words: unknown[]) => boolean;
  worker.process.send = (...words: unknown[]): boolean => {
    const handle = words[1];
    if (isHandle(handle)) latest = handle;
    return send(...words);
  };
  worker.once("exit", () => setTimeout(() => latest?.close(), LAST_WORDS_MS).unref());
}
