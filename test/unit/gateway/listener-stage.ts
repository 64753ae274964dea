import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";
import { ClientConnections, type ClientLimits } from "../../../src/gateway/connections/client-connections.ts";
import { createListener, type ListenerOptions } from "../../../src/gateway/listener.ts";

/** Longer than any test: what ends a connection here is no timeout. */
const TIMEOUT_MS = 60_000;

type Request = Parameters<ListenerOptions["serve"]>[0];

/**
 * A listener with nothing behind it but `serve`, and its clients' connections. It closes when the test ends.
 * @param limits those that the test is about; the others are out of reach
 */
export async function givenListener(
  limits: Partial<ClientLimits>,
  serve: (request: Request, connections: ClientConnections) => ReturnType<ListenerOptions["serve"]>,
  peer: ConstructorParameters<typeof ClientConnections>[0]["peer"] = ({ remoteAddress = "" }) => ({
    address: remoteAddress,
    trusted: false,
  }),
) {
  const ended: string[] = [];
  const connections = new ClientConnections({
    live: {
      snapshot: {
        config: {
          server: {
            maxConnections: 1000,
            maxConnectionsPerAddress: 1000,
            maxRequestsInFlight: 10_000,
            maxUnreadBytes: 1e9,
            ...limits,
          },
        },
      },
    },
    peer,
    ended: (by) => void ended.push(by),
  });
  const listener = createListener({
    connections,
    headersTimeoutMs: TIMEOUT_MS,
    keepAliveTimeoutMs: TIMEOUT_MS,
    writeTimeoutMs: TIMEOUT_MS,
    serve: (request) => serve(request, connections),
    refuseMalformedBody: () => Promise.reject(new Error("no body here is malformed")),
    onMalformedRequest: () => undefined,
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  onTestFinished(() => void listener.close());
  const { port } = listener.address() as AddressInfo;
  return { connections, listener, port, ended };
}
