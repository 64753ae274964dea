import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { pauseReading } from "../../../src/gateway/connections/client-connection.ts";
import { until } from "../../support/until.ts";

const GET = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/** A server whose answers are given by `serve`, and a client of it. */
async function given(serve: (res: ServerResponse, nth: number) => void): Promise<Socket> {
  let requests = 0;
  const server = createServer((_req, res) => serve(res, ++requests));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const client = connect((server.address() as AddressInfo).port, "127.0.0.1");
  await once(client, "connect");
  onTestFinished(() => {
    client.destroy();
    server.closeAllConnections();
    server.close();
  });
  return client;
}

async function ticks(): Promise<void> {
  for (let n = 0; n < 50; n++) await new Promise((resolve) => setImmediate(resolve));
}

// Guarantee: a connection that Node itself has paused, for answers that nobody takes, is held without end and without work.
test("a connection whose answers are not taken can be held, and is read on when they are", async () => {
  let resumed = 0;
  let served = 0;
  let release = (): void => undefined;
  const client = await given((res, nth) => {
    served = nth;
    if (nth === 2) {
      release = pauseReading(res.req.socket);
      res.req.socket.on("resume", () => void resumed++);
    }
    // Far more than the kernel takes: Node pauses the connection before the fourth request.
    res.end(Buffer.alloc(4 * 1024 * 1024));
  });
  client.pause();
  client.write(GET.repeat(6));
  await until(() => served === 6, "all of one read");
  await ticks();
  expect(resumed).toBeLessThan(10);
  release();
  client.write(GET);
  client.resume();
  await until(() => served === 7, "the next request");
});

test("what comes during a hold is read behind it, whatever Node resumes meanwhile", async () => {
  let served = 0;
  let socket: Socket | undefined;
  let release = (): void => undefined;
  const client = await given((res, nth) => {
    served = nth;
    if (nth === 1) {
      socket = res.req.socket;
      // As Node does, in the same tick: it comes into force behind the hold.
      socket.pause().resume();
      release = pauseReading(socket);
    }
    res.end();
  });
  client.write(GET);
  await until(() => served === 1, "the first request");
  client.write(GET);
  await ticks();
  socket?.resume();
  await ticks();
  expect(served).toBe(1);
  release();
  await until(() => served === 2, "the second request");
});
