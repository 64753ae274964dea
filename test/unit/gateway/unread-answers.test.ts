import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import type { Exchange } from "../../../src/gateway/http-exchange.ts";
import { until } from "../../support/until.ts";
import { givenListener } from "./listener-stage.ts";

const MB = 1_000_000;

/** A listener whose answers have as many bytes as the path says. */
async function givenAnswers(maxUnreadBytes: number) {
  const { connections, ended, port } = await givenListener(
    { maxUnreadBytes },
    ({ req, res }, connections) => {
      const bytes = Number(req.url?.slice(1));
      const exchange = { req, res } as Exchange;
      res.end(Buffer.alloc(bytes));
      connections.responseWritten(exchange, bytes);
      return exchange;
    },
  );
  /** A client that asks for so many bytes and reads none of them. */
  async function stuck(bytes: number): Promise<Socket> {
    const socket = connect({ host: "127.0.0.1", port });
    onTestFinished(() => void socket.destroy());
    socket.on("error", () => undefined).pause();
    await once(socket, "connect");
    socket.write(`GET /${bytes} HTTP/1.1\r\n\r\n`);
    return socket;
  }
  return { connections, ended, stuck };
}

// Guarantee: whoever holds little of the memory for unread answers does not lose his connection for one who holds much.
test("above the limit of unread answers the connection that holds the most is ended, and no other", async () => {
  const { connections, ended, stuck } = await givenAnswers(45 * MB);
  await stuck(30 * MB);
  await until(() => connections.counts().unreadBytes === 30 * MB, "the large answer");
  const small = await stuck(12 * MB);
  await until(() => connections.counts().unreadBytes === 42 * MB, "the small answer");
  await stuck(10 * MB);
  await until(() => ended.length > 0, "one to be ended");
  expect(connections.counts()).toMatchObject({ open: 2, unreadBytes: 22 * MB });
  let read = 0;
  small.resume().on("data", (bytes) => {
    read += bytes.length;
  });
  await until(() => read > 12 * MB, "the small answer to be read");
  expect(ended).toEqual(["unread_answers"]);
});
