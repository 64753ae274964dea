import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { expectStatus, givenGateway, limitsOf, type TestGateway } from "../support/gateway.ts";
import {
  expectNobody,
  expectUnconsumed,
  givenTightKey,
  head,
  rawClient,
  rawGeneration,
  revoke,
  TEXT_TO_VIDEO,
} from "./spec-stage.ts";

let gateway: TestGateway;
/** Only for clients that are meant to be too slow. */
let impatient: TestGateway;
beforeAll(async () => {
  gateway = await givenGateway();
  impatient = await givenGateway({
    generator: gateway.generator,
    config: { server: { headersTimeoutMs: 1500, bodyTimeoutMs: 150, uploadIdleTimeoutMs: 150 } },
  });
});
afterAll(async () => {
  await impatient.stop();
  await gateway.stop();
});

async function client(of = gateway) {
  const raw = await rawClient(of.url);
  onTestFinished(() => raw.end());
  return raw;
}

const CREDITS = (...more: string[]) => head("GET /api/v1/credits HTTP/1.1", "Host: a", ...more);
const bearer = (key: string) => `Authorization: Bearer ${key}`;

describe("slow clients", () => {
  test("headers that do not come in time are 408, also when each byte keeps the line busy", async () => {
    const raw = await client(impatient);
    raw.write("GET /api/v1/credits HTTP/1.1\r\nHost: a\r\nX: ");
    const drip = setInterval(() => raw.write("x"), 20);
    onTestFinished(() => clearInterval(drip));
    const reply = await raw.answer();
    expectStatus(reply, 408);
    expectNobody(reply);
    await raw.closed();
  });

  test("a JSON body that does not come in time is 408, counts for nothing, and its key's numbers are true", async () => {
    const issued = await givenTightKey(gateway);
    const raw = await client(impatient);
    raw.write(rawGeneration(issued.key).slice(0, -5));
    const drip = setInterval(() => raw.write(" "), 60);
    onTestFinished(() => clearInterval(drip));
    const reply = await raw.answer();
    expectStatus(reply, 408);
    expect(reply.body.code).toBe(408);
    expect(limitsOf(reply)).toMatchObject({ limit: 1, remaining: 1 });
    await expectUnconsumed(gateway, issued);
  });

  test("an upload that stands still is 408", async () => {
    const issued = await givenTightKey(gateway);
    const raw = await client(impatient);
    const type = "Content-Type: multipart/form-data; boundary=b";
    raw.write(
      `${head("POST /api/v1/upload HTTP/1.1", "Host: a", bearer(issued.key), type, "Content-Length: 500")}--b\r\n`,
    );
    const reply = await raw.answer();
    expectStatus(reply, 408);
    expect(limitsOf(reply)).toMatchObject({ limit: 1, remaining: 1 });
    await expectUnconsumed(gateway, issued);
  });
});

describe("413 while the client is still sending", () => {
  const TYPE = "Content-Type: application/json";

  test("by Content-Length: the client reads the answer, sends the rest, and the connection serves on", async () => {
    const { key } = await gateway.givenKey();
    const raw = await client();
    const bytes = 1_000_000;
    raw.write(
      head(`POST ${TEXT_TO_VIDEO} HTTP/1.1`, "Host: a", bearer(key), TYPE, `Content-Length: ${bytes}`),
    );
    raw.write("x".repeat(100));
    const reply = await raw.answer();
    expectStatus(reply, 413);
    expect(reply.headers.get("connection")).not.toBe("close");
    raw.write("x".repeat(bytes - 100));
    raw.write(rawGeneration(key));
    expectStatus(await raw.answer(), 200);
  });

  test("chunked: the same, once 256 KiB are passed", async () => {
    const { key } = await gateway.givenKey();
    const raw = await client();
    raw.write(
      head(`POST ${TEXT_TO_VIDEO} HTTP/1.1`, "Host: a", bearer(key), TYPE, "Transfer-Encoding: chunked"),
    );
    const chunk = `10000\r\n${"x".repeat(0x10000)}\r\n`;
    raw.write(chunk.repeat(5));
    expectStatus(await raw.answer(), 413);
    raw.write(`${chunk.repeat(5)}0\r\n\r\n`);
    raw.write(CREDITS(bearer(key)));
    expectStatus(await raw.answer(), 200);
  });

  test("an endless body is cut off in the end", async () => {
    const { key } = await gateway.givenKey();
    const raw = await client();
    raw.write(
      head(`POST ${TEXT_TO_VIDEO} HTTP/1.1`, "Host: a", bearer(key), TYPE, "Content-Length: 99999999999"),
    );
    expectStatus(await raw.answer(), 413);
    const block = Buffer.alloc(1024 * 1024, "x");
    let sent = 0;
    const send = () => {
      while (!raw.socket.destroyed && raw.socket.writable && sent++ < 200)
        if (!raw.socket.write(block)) return;
    };
    raw.socket.on("drain", send);
    send();
    await raw.closed();
    expect(sent).toBeLessThan(200);
  });
});

describe("pipelining", () => {
  test("several requests at once are each answered, in order", async () => {
    const { key } = await gateway.givenKey();
    const raw = await client();
    raw.write(
      rawGeneration(key) + CREDITS(bearer(key)) + CREDITS() + rawGeneration(key, {}) + CREDITS(bearer(key)),
    );
    const statuses = [];
    for (let n = 0; n < 5; n++) statuses.push((await raw.answer()).status);
    expect(statuses).toEqual([200, 200, 401, 400, 200]);
  });

  // Guarantee: a request whose framing is in doubt does not bring a smuggled one with it.
  test("what follows a request with a faulty head is not served", async () => {
    const issued = await givenTightKey(gateway);
    const raw = await client();
    raw.write(
      head("GET /api/v1/credits HTTP/1.1", "Host: a", "Host: b", bearer(issued.key)) +
        rawGeneration(issued.key),
    );
    expectStatus(await raw.answer(), 400);
    await raw.closed();
    await expectUnconsumed(gateway, issued);
  });

  const EXPECT = "Expect: 100-continue";
  /** The head of a generation without Content-Type. */
  const waiting = (key: string) =>
    head(`POST ${TEXT_TO_VIDEO} HTTP/1.1`, "Host: a", bearer(key), EXPECT, "Content-Length: 2");

  // Guarantee: a customer who is charged is told so, also behind a request that is refused unread.
  test("a generation behind a refused body that came unasked is answered, and so is one behind a GET that expects 100", async () => {
    const { key } = await gateway.givenKey();
    const raw = await client();
    raw.write(`${waiting(key)}{}${CREDITS(bearer(key), EXPECT)}${rawGeneration(key)}`);
    expectStatus(await raw.answer(), 415);
    expectStatus(await raw.answer(), 200);
    expect((await raw.answer()).body.data).toMatchObject({ task_id: expect.any(String) });
  });

  test("a client that waits for 100 is refused with the end of the connection: its body might come or not", async () => {
    const { key } = await gateway.givenKey();
    const raw = await client();
    raw.write(waiting(key));
    const reply = await raw.answer();
    expectStatus(reply, 415);
    expect(reply.headers.get("connection")).toBe("close");
    await raw.closed();
  });

  // Guarantee: a customer who is charged is told so; the answer to one request is never taken for another's.
  test.each(["GARBAGE\r\n\r\n", "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n"])(
    "%j behind a good request does not take its answer away",
    async (garbage) => {
      const { key } = await gateway.givenKey();
      const raw = await client();
      raw.write(rawGeneration(key, { prompt: "[sandbox: delay=60ms]" }) + garbage);
      expectStatus(await raw.answer(), 200);
      expectStatus(await raw.answer(), 400);
      await raw.closed();
    },
  );

  test("a broken body behind a good request is answered behind it, and a body refused before only once", async () => {
    const { key } = await gateway.givenKey();
    const chunked = [`POST ${TEXT_TO_VIDEO} HTTP/1.1`, "Host: a", bearer(key), "Transfer-Encoding: chunked"];
    const first = await client();
    first.write(rawGeneration(key, { prompt: "[sandbox: delay=60ms]" }));
    first.write(`${head(...chunked, "Content-Type: application/json")}zzz\r\n`);
    expectStatus(await first.answer(), 200);
    expectStatus(await first.answer(), 400);
    await first.closed();

    const second = await client();
    second.write(`${head(...chunked, "Content-Type: text/plain")}1\r\nx\r\n`);
    expectStatus(await second.answer(), 415);
    second.write("zzz\r\n");
    await second.closed();
    await expect(second.answer()).rejects.toThrow("left: ");
  });

  test("a revoked key on a kept connection is refused from the next request on", async () => {
    const issued = await gateway.givenKey();
    const raw = await client();
    raw.write(CREDITS(bearer(issued.key)));
    expectStatus(await raw.answer(), 200);
    await revoke(gateway, issued);
    raw.write(rawGeneration(issued.key, { nonsense: true }));
    const reply = await raw.answer();
    expect(reply.body).toMatchObject({ code: 401, error: "Invalid API key" });
    expectNobody(reply);
  });
});
