import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import { onTestFinished } from "vitest";
import { selfSignedCertificate } from "../../../src/sandbox/generator/server.ts";
import type { EgressPolicy, Network } from "../../../src/webhooks/guarded-agent.ts";
import { createSender, type Message } from "../../../src/webhooks/sender.ts";

export const CERTIFICATE = selfSignedCertificate();

export const POLICY: EgressPolicy = {
  allowNetworks: [],
  allowPorts: [],
  proxyUrl: undefined,
  timeoutMs: 10_000,
};

export const LOOPBACK: EgressPolicy = { ...POLICY, allowNetworks: ["127.0.0.0/8"] };

/** A message of a test, but for the address. */
export const messageTo = (url: string, body = '{"type":"test"}'): Message => ({
  url,
  headers: { "webhook-id": "msg_1" },
  body,
});

/** Closed at the end of the test. */
export function givenSender(policy: EgressPolicy | (() => EgressPolicy) = LOOPBACK, network?: Network) {
  const sender = createSender(typeof policy === "function" ? policy : () => policy, network);
  onTestFinished(() => sender.close());
  return sender;
}

/**
 * A receiver on a bare socket, so that it can break every rule.
 * @param answer is called once a request has come whole, with all of its bytes
 */
export async function givenReceiver(
  answer: (socket: Socket, request: string) => void,
  { scheme = "http", onSocket }: { scheme?: "http" | "https"; onSocket?: (socket: Socket) => void } = {},
) {
  const sockets = new Set<Socket>();
  const requests: string[] = [];
  let connections = 0;
  let bytes = 0;
  const serve = (socket: Socket): void => {
    connections++;
    sockets.add(socket);
    let text = "";
    socket.setNoDelay(true).on("error", () => undefined);
    socket.on("close", () => sockets.delete(socket));
    onSocket?.(socket);
    socket.on("data", (chunk: Buffer) => {
      bytes += chunk.length;
      text += chunk.toString("latin1");
      if (!isWhole(text)) return;
      requests.push(text);
      const request = text;
      text = "";
      answer(socket, request);
    });
  };
  const server = scheme === "http" ? createServer(serve) : createTlsServer(CERTIFICATE, serve);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return {
    port,
    url: `${scheme}://127.0.0.1:${port}/hook`,
    requests,
    sockets,
    connections: () => connections,
    bytes: () => bytes,
  };
}

function isWhole(text: string): boolean {
  const end = text.indexOf("\r\n\r\n");
  if (end === -1) return false;
  const length = Number(/content-length: (\d+)/i.exec(text)?.[1] ?? 0);
  return text.length >= end + 4 + length;
}

/** An answer with this head and body; without a length of its own it gets the right one. */
export function answered(head: string, body = ""): (socket: Socket) => void {
  const length = /content-length|transfer-encoding/i.test(head) ? "" : `Content-Length: ${body.length}\r\n`;
  return (socket) => void socket.write(`HTTP/1.1 ${head}\r\n${length}\r\n${body}`);
}
