import type { Worker } from "node:cluster";

/** Time to read the last messages of a worker that ended. */
const LAST_MESSAGES_MS = 1000;

/** A connection as node:cluster passes it to a worker. Closing it twice has no effect. */
interface Handle {
  close(): void;
}

const isHandle = (sent: unknown): sent is Handle =>
  typeof sent === "object" && sent !== null && "close" in sent && typeof sent.close === "function";

/**
 * Closes the connection that a worker was sent and had not accepted when it ended. node:cluster sends a worker one connection
 * at a time and keeps it open in the supervisor until the worker confirms it. A worker that stalls and is killed never
 * confirms, and the client would wait for ever. Must be called before the worker is sent any connection.
 */
export function endConnectionsLeftBy(worker: Worker): void {
  let latest: Handle | undefined;
  const send = worker.process.send?.bind(worker.process) as (...args: unknown[]) => boolean;
  worker.process.send = (...args: unknown[]): boolean => {
    const handle = args[1];
    if (isHandle(handle)) latest = handle;
    return send(...args);
  };
  worker.once("exit", () => setTimeout(() => latest?.close(), LAST_MESSAGES_MS).unref());
}
