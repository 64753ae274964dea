import type { Worker } from "node:cluster";

const LAST_MESSAGES_MS = 1000;

/** A connection of node:cluster. Closing it twice has no effect. */
interface Handle {
  close(): void;
}

const isHandle = (sent: unknown): sent is Handle =>
  typeof sent === "object" && sent !== null && "close" in sent && typeof sent.close === "function";

/**
 * Closes the connection that a worker had not accepted when it ended: node:cluster keeps it open in the supervisor until the
 * worker confirms it. Call before the worker is sent a connection.
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
