import { once } from "node:events";
import { type AddressInfo, connect } from "node:net";
import { setImmediate as nextTick } from "node:timers/promises";
import { expect, onTestFinished, test, vi } from "vitest";
import { ClientConnections, REFUSED_MAX } from "../../../src/gateway/client-connections.ts";
import { createListener } from "../../../src/gateway/listener.ts";

const REFUSED = 100;

// Guarantee: connections above a limit take a bounded number of descriptors, also where none can be ended for them.
test("of connections that are refused 64 are kept for their 503, the others are closed at once", async () => {
  // The moment for which they are kept does not pass.
  vi.useFakeTimers({ toFake: ["setTimeout"] });
  onTestFinished(() => void vi.useRealTimers());
  let served = 0;
  const connections = new ClientConnections({
    limits: () => ({
      maxConnections: 1,
      maxConnectionsPerAddress: 1,
      maxRequestsInFlight: 100,
      maxUnreadBytes: 1e9,
    }),
    peer: () => ({ address: "", trusted: false }),
    ended: () => undefined,
  });
  const listener = createListener({
    connections,
    headersTimeoutMs: 60_000,
    keepAliveTimeoutMs: 60_000,
    writeTimeoutMs: 60_000,
    serve: () => {
      served++;
      return undefined;
    },
    refuseMalformedBody: () => Promise.reject(new Error("none is broken")),
    onMalformedRequest: () => undefined,
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  onTestFinished(() => void listener.close());
  const { port } = listener.address() as AddressInfo;
  let closed = 0;
  const client = () => {
    const socket = connect({ host: "127.0.0.1", port });
    onTestFinished(() => void socket.destroy());
    return socket
      .on("error", () => undefined)
      .on("close", () => closed++)
      .resume();
  };
  client().write("GET / HTTP/1.1\r\n\r\n");
  while (served === 0) await nextTick();
  const refused = Array.from({ length: REFUSED }, client);
  while (closed < REFUSED - REFUSED_MAX) await nextTick();
  await Promise.all(refused.map((socket) => socket.connecting && once(socket, "connect")));
  for (let n = 0; n < 100; n++) await nextTick();
  expect(closed).toBe(REFUSED - REFUSED_MAX);
  vi.advanceTimersByTime(60_000);
  while (closed < REFUSED) await nextTick();
});
