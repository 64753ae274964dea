import { once } from "node:events";
import { connect } from "node:net";
import { setImmediate as nextTick } from "node:timers/promises";
import { expect, onTestFinished, test, vi } from "vitest";
import { REFUSED_MAX } from "../../../src/gateway/connections/client-connections.ts";
import { givenListener } from "./listener-stage.ts";

const REFUSED = 100;

// Guarantee: connections above a limit take a bounded number of descriptors, also where none can be ended for them.
test("of connections that are refused 64 are kept for their 503, the others are closed at once", async () => {
  // The moment for which they are kept does not pass.
  vi.useFakeTimers({ toFake: ["setTimeout"] });
  onTestFinished(() => void vi.useRealTimers());
  let served = 0;
  const { port } = await givenListener({ maxConnections: 1, maxConnectionsPerAddress: 1 }, () => {
    served++;
    return undefined;
  });
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
