import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { connect } from "node:net";
import { expect, test } from "vitest";
import { until } from "../../support/until.ts";
import { givenListener } from "./listener-stage.ts";

/** More than the system keeps for a client that does not read. */
const ANSWER_BYTES = 32 * 1024 * 1024;

// Guarantee: a drain loses no answer that was written, nor one behind it: it may be that of a charge.
test("closing lets a slow client have all answers of its connection, then ends it; idle ones end at once", async () => {
  const answers: ServerResponse[] = [];
  const limits = { maxUnreadBytes: 2 * ANSWER_BYTES };
  const { connections, listener, port } = await givenListener(limits, ({ res }) => {
    answers.push(res);
    res.end(answers.length === 1 ? "idle" : "x".repeat(answers.length === 2 ? ANSWER_BYTES : 10));
    return undefined;
  });
  const idle = connect(port, "127.0.0.1");
  idle.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  await once(idle, "data");
  const slow = connect(port, "127.0.0.1");
  slow.pause();
  slow.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(2));
  await until(() => answers.length === 3, "both requests to be served");
  expect(connections.unflushedResponses()).toBe(2);

  const closed = once(listener, "close");
  listener.close();
  listener.closeIdleConnections();
  await once(idle, "close");
  expect(slow.destroyed).toBe(false);
  let bytes = 0;
  let last = "";
  slow.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    last = chunk.toString("latin1").slice(-14);
  });
  slow.resume();
  await once(slow, "close");
  await closed;
  expect(bytes).toBeGreaterThan(ANSWER_BYTES);
  expect(last).toBe("\r\n\r\nxxxxxxxxxx");
});
