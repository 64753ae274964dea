import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { clientAddress } from "../gateway/address.ts";
import { createConnectionLimits, type LimitedConnection } from "../gateway/connection-limits.ts";
import { followConnections } from "../gateway/http-server.ts";

/** Unanswered requests on one connection; no client of the admin port pipelines. */
const UNANSWERED_MAX = 8;

const addressOf = clientAddress([]);

/** A new connection replaces the longest idle one of the address with the most, or else the one longest busy with an incomplete request. */
export function limitAdminConnections(server: Server, max: number): void {
  interface Open extends LimitedConnection {
    socket: Socket;
    pending: Set<ServerResponse>;
  }
  const limits = createConnectionLimits<Open>(() => ({ total: max, perAddress: max }));
  const open = new Map<Socket, Open>();
  let activity = 0;
  function opened(socket: Socket): void {
    const connection: Open = {
      socket,
      address: addressOf(socket.remoteAddress, undefined),
      trusted: false,
      pending: new Set(),
      lastActive: ++activity,
      isIdle: () => connection.pending.size === 0,
      isSending: () => [...connection.pending].every(({ req }) => !req.complete),
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
    connection.pending.add(res);
    if (connection.pending.size > UNANSWERED_MAX) socket.destroy();
    res.once("close", () => {
      connection.pending.delete(res);
      connection.lastActive = ++activity;
    });
  });
}
