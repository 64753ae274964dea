import type { RequestListener, Server, ServerOptions } from "node:http";
import { createServer as createSecureServer, type Server as SecureServer } from "node:https";
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import type { TlsMaterial } from "../../config/tls.ts";

/** Not imported: node:http's `WebSocket` export loads Node's fetch client, 40 ms. Decision 0040. */
const { createServer } = process.getBuiltinModule("node:http");

const HANDSHAKE_TIMEOUT_MS = 10_000;

/** A node:http server, with TLS 1.2 and up if there is a certificate. HTTP/1.1 is the only protocol. */
export function createHttpServer(
  options: ServerOptions,
  tls: TlsMaterial | undefined,
  listener?: RequestListener,
): Server {
  if (!tls) return createServer(options, listener);
  const secure = {
    ...options,
    ...contextOf(tls),
    ALPNProtocols: ["http/1.1"],
    handshakeTimeout: HANDSHAKE_TIMEOUT_MS,
    // As in node:http: a client may close its sending side and wait for the response.
    allowHalfOpen: true,
    requestCert: tls.clientCa !== undefined,
    rejectUnauthorized: tls.clientCa !== undefined,
  };
  return createSecureServer(secure, listener);
}

/** New connections get another certificate; open connections keep theirs. */
export function renewTls(server: Server, tls: TlsMaterial): void {
  (server as SecureServer).setSecureContext(contextOf(tls));
}

const contextOf = ({ cert, key, clientCa }: TlsMaterial) => ({
  cert,
  key,
  minVersion: "TLSv1.2" as const,
  ...(clientCa === undefined ? {} : { ca: clientCa }),
});

const isSecure = (server: Server): server is SecureServer => "setSecureContext" in server;

/** From the acceptance on, so that handshakes count. @param on.secured called after the handshake, with the socket of its requests */
export function followConnections(
  server: Server,
  on: { opened(socket: Socket): void; secured(accepted: Socket, socket: TLSSocket): void },
): void {
  server.on("connection", on.opened);
  if (!isSecure(server)) return;
  /** Node does not tell which accepted connection a TLS socket belongs to; the peer's address and port do. */
  const handshakes = new Map<string, Socket>();
  const peerOf = ({ remoteAddress, remotePort }: Socket): string => `${remoteAddress} ${remotePort}`;
  server.on("connection", (accepted: Socket) => {
    const peer = peerOf(accepted);
    handshakes.set(peer, accepted);
    accepted.once("close", () => {
      if (handshakes.get(peer) === accepted) handshakes.delete(peer);
    });
  });
  server.on("secureConnection", (socket: TLSSocket) => {
    const peer = peerOf(socket);
    const accepted = handshakes.get(peer);
    handshakes.delete(peer);
    if (accepted) on.secured(accepted, socket);
    else socket.destroy();
  });
}
