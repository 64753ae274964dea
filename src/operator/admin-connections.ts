import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { createConnectionLimits, type LimitedConnection } from "../gateway/connection-limits.ts";
import { followConnections } from "../gateway/http-server.ts";

/** Unanswered requests on one connection; no client of the admin port pipelines. */
const UNANSWERED_MAX = 8;

/**
 * Limits the connections of the admin port, which has few clients: a new connection replaces the longest idle one, and a connection with
 * many unanswered requests is ended. Requests that were read already still reach the server's handlers, with a destroyed socket.
 */
export function limitAdminConnections(server: Server, max: number): void {
  interface Open extends LimitedConnection {
    socket: Socket;
    answers: number;
  }
  const limits = createConnectionLimits<Open>(() => ({ total: max, perAddress: max }));
  const open = new Map<Socket, Open>();
  let activity = 0;
  function opened(socket: Socket): void {
    const connection: Open = {
      socket,
      address: "",
      trusted: false,
      answers: 0,
      lastActive: ++activity,
      isIdle: () => connection.answers === 0,
      isSending: () => connection.answers === 0,
    };
    const entry = limits.enter(connection);
    if (entry.outcome === "refused") {
      socket.destroy();
      return;
    }
    open.set(socket, connection);
    socket.once("close", () => {
      if (open.delete(connection.socket)) limits.leave(connection);
    });
    if (entry.outcome !== "admitted_instead") return;
    open.delete(entry.of.socket);
    entry.of.socket.destroy();
  }
  function secured(accepted: Socket, socket: Socket): void {
    const connection = open.get(accepted);
    if (!connection) {
      socket.destroy();
      return;
    }
    open.delete(accepted);
    connection.socket = socket;
    open.set(socket, connection);
  }
  followConnections(server, { opened, secured });
  server.prependListener("request", ({ socket }: IncomingMessage, res: ServerResponse) => {
    const connection = open.get(socket);
    if (!connection) return;
    if (++connection.answers > UNANSWERED_MAX) socket.destroy();
    res.once("close", () => {
      connection.answers--;
      connection.lastActive = ++activity;
    });
  });
}
