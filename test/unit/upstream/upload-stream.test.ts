import { EventEmitter, once } from "node:events";
import http, { type IncomingMessage } from "node:http";
import net from "node:net";
import { PassThrough, Writable } from "node:stream";
import { afterEach, describe, expect, onTestFinished, test, vi } from "vitest";
import packageJson from "../../../package.json" with { type: "json" };
import type { Refusal } from "../../../src/domain/errors.ts";
import { FILE_BYTES_MAX } from "../../../src/domain/limits.ts";
import { readUpload } from "../../../src/upstream/upload-body.ts";
import { FORM_OVERHEAD_BYTES_MAX } from "../../../src/upstream/upload-form.ts";
import { IMAGE_TYPES, imageOfSize, tinyImage } from "../../support/images.ts";
import {
  BOUNDARY,
  closeStage,
  formOf,
  givenGateway,
  givenRawUpstream,
  givenUpstream,
  imageForm,
  openPost,
  post,
  type Received,
  sinkInto,
  UPLOADED,
  until,
} from "./upload-stage.ts";

afterEach(closeStage);

const png = tinyImage("image/png");
const IDLE_MS = 1000;

/** The head of an upload on a connection that stays open. */
function headFor(body: Buffer): Buffer {
  const type = `multipart/form-data; boundary=${BOUNDARY}`;
  return Buffer.from(
    `POST / HTTP/1.1\r\nHost: a\r\nContent-Type: ${type}\r\nContent-Length: ${body.length}\r\n\r\n`,
  );
}

/** The only part of what the upstream received. */
function partOf({ headers, body }: Received) {
  const boundary = /^multipart\/form-data; boundary=(\S+)$/.exec(headers["content-type"] ?? "")?.[1];
  const text = body.toString("latin1");
  const [preamble, part, epilogue, ...more] = `\r\n${text}`.split(`\r\n--${boundary}`);
  expect([preamble, epilogue, more]).toEqual(["", "--\r\n", []]);
  const end = part!.indexOf("\r\n\r\n");
  return { head: part!.slice(2, end), file: Buffer.from(part!.slice(end + 4), "latin1") };
}

describe("an upload that passes", () => {
  test.each(IMAGE_TYPES)("%s reaches the upstream as one part with its true type", async (type) => {
    const upstream = await givenUpstream();
    const gateway = await givenGateway(upstream.url);
    const body = formOf([
      { filename: "../../etc/%22x%22.png", type: "application/octet-stream", body: tinyImage(type) },
    ]);
    expect(await post(gateway, body)).toEqual({
      outcome: "answered",
      url: UPLOADED.data.url,
      expiresAt: UPLOADED.data.expires_at,
      data: UPLOADED.data,
    });
    const [received] = upstream.received;
    const { head, file } = partOf(received!);
    expect(file).toEqual(tinyImage(type));
    const name = `upload.${type.slice(6).replace("jpeg", "jpg")}`;
    expect(head).toBe(
      `Content-Disposition: form-data; name="file"; filename="${name}"\r\nContent-Type: ${type}`,
    );
    expect(gateway.reads()).toBe(1);
  });

  test("no header of the client's reaches the upstream", async () => {
    const upstream = await givenUpstream();
    const gateway = await givenGateway(upstream.url);
    await post(gateway, imageForm(png), {
      authorization: "Bearer sk_customer",
      cookie: "a=b",
      "x-forwarded-for": "10.0.0.1",
      "x-request-id": "theirs",
      "user-agent": "curl",
      trailer: "x-t",
      te: "trailers",
      expect: "100-continue",
    });
    const { headers, method, url } = upstream.received[0]!;
    expect({ method, url }).toEqual({ method: "POST", url: "/api/v1/upload" });
    expect(headers).toEqual({
      host: new URL(upstream.url).host,
      connection: "keep-alive",
      "transfer-encoding": "chunked",
      "content-type": expect.stringMatching(/^multipart\/form-data; boundary=tollgate-/),
      authorization: "Bearer upstream-secret",
      accept: "application/json",
      "accept-encoding": "identity",
      "user-agent": `tollgate/${packageJson.version}`,
      "x-request-id": "req-1",
    });
  });

  test("a base path stays, and no key means no Authorization", async () => {
    const upstream = await givenUpstream();
    for (const base of ["/base", "/base/"]) {
      const gateway = await givenGateway(upstream.url + base, { apiKey: undefined });
      await post(gateway, imageForm(png), { authorization: "Bearer sk_customer" });
    }
    for (const { url, headers } of upstream.received) {
      expect(url).toBe("/base/api/v1/upload");
      expect(headers.authorization).toBeUndefined();
    }
  });

  test("the largest file passes unchanged, with and without Content-Length", async () => {
    const upstream = await givenUpstream();
    const gateway = await givenGateway(upstream.url);
    const file = imageOfSize("image/jpeg", FILE_BYTES_MAX);
    const body = imageForm(file, "image/jpeg");
    expect((await post(gateway, body)).outcome).toBe("answered");
    expect((await post(gateway, body, { "transfer-encoding": "chunked" })).outcome).toBe("answered");
    for (const received of upstream.received) expect(partOf(received).file.equals(file)).toBe(true);
  });

  test("fields that the upstream adds are kept", async () => {
    const data = { ...UPLOADED.data, width: 1, nested: { a: [null] } };
    const upstream = await givenUpstream((req, res) => {
      req.on("end", () => res.end(JSON.stringify({ code: 200, data })));
    });
    const gateway = await givenGateway(upstream.url);
    expect(await post(gateway, imageForm(png))).toMatchObject({ outcome: "answered", data });
  });

  test("connections are used again, never more than allowed", async () => {
    const upstream = await givenUpstream();
    const gateway = await givenGateway(upstream.url, { connections: 3 });
    const all = await Promise.all(Array.from({ length: 40 }, () => post(gateway, imageForm(png))));
    expect(all.every(({ outcome }) => outcome === "answered")).toBe(true);
    expect(upstream.opened()).toBe(3);
  });

  test("one client connection can carry many uploads without gathering listeners", async () => {
    const upstream = await givenUpstream();
    const gateway = await givenGateway(upstream.url);
    const socket = net.connect(gateway.port, "127.0.0.1");
    const counts: number[] = [];
    for (let i = 0; i < 20; i++) {
      socket.write(Buffer.concat([headFor(imageForm(png)), imageForm(png)]));
      await once(socket, "data");
      counts.push(gateway.requests.at(-1)!.socket.listenerCount("close"));
    }
    expect(new Set(counts).size).toBe(1);
    socket.destroy();
  });
});

describe("a refused upload", () => {
  const type = { "content-type": `multipart/form-data; boundary=${BOUNDARY}` };

  test.each([
    ["another media type", { "content-type": "application/json" }, 415],
    ["a content encoding", { ...type, "content-encoding": "gzip" }, 415],
    ["no boundary", { "content-type": "multipart/form-data" }, 400],
    [
      "a length beyond all bounds",
      { ...type, "content-length": FILE_BYTES_MAX + FORM_OVERHEAD_BYTES_MAX + 1 },
      413,
    ],
  ])("for %s is refused before its body is read", async (_, headers, status) => {
    const upstream = await givenUpstream();
    const gateway = await givenGateway(upstream.url);
    const req = openPost(gateway, headers);
    req.flushHeaders();
    await once(req, "response");
    expect(gateway.outcomes).toEqual([{ outcome: "refused", refusal: expect.objectContaining({ status }) }]);
    expect(gateway.reads()).toBe(0);
    expect(upstream.opened()).toBe(0);
    req.destroy();
  });

  test("for its type never opens a request upstream", async () => {
    const upstream = await givenUpstream();
    const gateway = await givenGateway(upstream.url);
    for (const body of [imageForm(png, "image/gif"), imageForm(Buffer.from("no image at all")), formOf([])])
      expect((await post(gateway, body)).outcome).toBe("refused");
    expect(upstream.opened()).toBe(0);
  });

  const large = imageOfSize("image/png", 300_000);
  const file = { filename: "a.png", type: "image/png", body: large };
  test.each([
    ["a second part", formOf([file, file])],
    ["a field after the file", formOf([file, { name: "a", body: "b" }])],
    ["a form without its end", formOf([file]).subarray(0, -8)],
    ["a file cut short", formOf([file]).subarray(0, 200_000)],
    ["a file one byte too large", imageForm(imageOfSize("image/png", FILE_BYTES_MAX + 1))],
  ])("for %s is never complete upstream, and leaves no connection", async (_, body) => {
    const upstream = await givenUpstream();
    const gateway = await givenGateway(upstream.url);
    expect((await post(gateway, body, { "transfer-encoding": "chunked" })).outcome).toBe("refused");
    await until(() => upstream.received.length === upstream.opened());
    expect(upstream.received.map(({ complete }) => complete)).not.toContain(true);
    await until(async () => (await upstream.connected()) === 0);
  });

  test("while the client still sends is answered at once; the rest can be drained and the connection used again", async () => {
    const upstream = await givenUpstream();
    const gateway = await givenGateway(upstream.url);
    const socket = net.connect(gateway.port, "127.0.0.1");
    const refused = imageForm(Buffer.alloc(2_000_000, "no image"));
    socket.write(headFor(refused));
    socket.write(refused.subarray(0, 1_000));
    expect(String(await once(socket, "data"))).toContain('"outcome":"refused"');
    expect(gateway.requests[0]).toMatchObject({ complete: false, destroyed: false });
    socket.write(refused.subarray(1_000));
    socket.write(Buffer.concat([headFor(imageForm(png)), imageForm(png)]));
    expect(String(await once(socket, "data"))).toContain('"outcome":"answered"');
    socket.destroy();
  });
});

describe("a slow client", () => {
  test("that pauses too long is refused with 408, before and within the file", async () => {
    const upstream = await givenUpstream();
    const gateway = await givenGateway(upstream.url, { idleTimeoutMs: 50 });
    for (const length of [0, 30, 400]) {
      const req = openPost(gateway);
      req.flushHeaders();
      if (length > 0) req.write(imageForm(imageOfSize("image/png", 1_000)).subarray(0, length));
      await once(req, "response");
      expect(gateway.outcomes.at(-1)).toMatchObject({ outcome: "refused", refusal: { status: 408 } });
      req.destroy();
    }
    await until(async () => (await upstream.connected()) === 0);
    expect(upstream.received.every(({ complete }) => !complete)).toBe(true);
  });

  test("that sends less than the minimum rate is refused with 408, however steadily it sends", async () => {
    const upstream = await givenUpstream();
    const gateway = await givenGateway(upstream.url, { idleTimeoutMs: 1000, minBytesPerSecond: 10_000 });
    const outcome = gateway.nextOutcome();
    const req = openPost(gateway);
    const drip = setInterval(() => req.write("x"), 20);
    onTestFinished(() => clearInterval(drip));
    req.write(imageForm(png).subarray(0, -40));
    expect(await outcome).toMatchObject({
      outcome: "refused",
      refusal: { name: "request_timeout", detail: "the upload is too slow" },
    });
    expect(upstream.opened()).toBe(0);
    req.destroy();
  });

  test("that never pauses too long may take its time", async () => {
    const upstream = await givenUpstream();
    const gateway = await givenGateway(upstream.url, { idleTimeoutMs: 1500 });
    const outcome = gateway.nextOutcome();
    const req = openPost(gateway);
    for (const byte of imageForm(png).subarray(0, 30)) {
      req.write(Buffer.of(byte));
      await new Promise((resolve) => setTimeout(resolve, 70));
    }
    req.end(imageForm(png).subarray(30));
    expect((await outcome).outcome).toBe("answered");
  });

  test("is timed again once back pressure ends", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    onTestFinished(() => void vi.useRealTimers());
    const req = Object.assign(new PassThrough(), {
      socket: new EventEmitter(),
    }) as unknown as IncomingMessage;
    const passed: (() => void)[] = [];
    let refusals = 0;
    let pass = (done: () => void) => {
      passed.push(done);
    };
    const refused = new Promise<Refusal>((resolve) => {
      const body = readUpload(
        req,
        BOUNDARY,
        { idleTimeoutMs: 50, minBytesPerSecond: 0 },
        {
          image: () =>
            sinkInto(new Writable({ highWaterMark: 1, write: (_chunk, _encoding, done) => pass(done) })),
          whole: () => {},
          gone: () => {},
          refused: (refusal) => {
            refusals++;
            body.stop();
            resolve(refusal);
          },
        },
      );
    });
    const form = imageForm(imageOfSize("image/png", 500_000));
    for (let at = 0; !req.isPaused(); at += 50_000) {
      (req as unknown as PassThrough).write(form.subarray(at, at + 50_000));
      await new Promise((resolve) => setImmediate(resolve)); // Nothing may wait unread: it would count as activity.
    }
    vi.advanceTimersByTime(60_000);
    expect(refusals).toBe(0);
    pass = (done) => done();
    for (const done of passed) done();
    await until(() => !req.isPaused());
    vi.advanceTimersByTime(49);
    expect(refusals).toBe(0);
    vi.advanceTimersByTime(1);
    expect((await refused).status).toBe(408);
  });

  test("that never pauses long but never ends meets the total deadline: 408", async () => {
    const upstream = await givenUpstream();
    const gateway = await givenGateway(upstream.url, { idleTimeoutMs: 5_000, totalTimeoutMs: 100 });
    const req = openPost(gateway);
    const drip = setInterval(() => req.write("x"), 5);
    req.write(imageForm(png).subarray(0, -50));
    await once(req, "response");
    clearInterval(drip);
    expect(gateway.outcomes).toMatchObject([{ outcome: "refused", refusal: { status: 408 } }]);
    req.destroy();
  });
});

describe("a client that goes away", () => {
  test.each([
    ["before its file", 0],
    ["within its file", 100_000],
  ])("%s: the upload breaks off upstream", async (_, length) => {
    const upstream = await givenUpstream();
    const gateway = await givenGateway(upstream.url);
    const outcome = gateway.nextOutcome();
    const req = openPost(gateway);
    req.flushHeaders();
    if (length > 0) {
      req.write(imageForm(imageOfSize("image/png", 200_000)).subarray(0, length));
      await until(() => upstream.opened() === 1);
    } else await until(() => gateway.reads() === 1);
    req.destroy();
    expect(await outcome).toEqual({ outcome: "client_gone" });
    await until(async () => (await upstream.connected()) === 0);
    expect(upstream.received.every(({ complete }) => !complete)).toBe(true);
  });

  test("after its form, while the upstream still thinks", async () => {
    const upstream = await givenUpstream(() => {});
    const gateway = await givenGateway(upstream.url);
    const outcome = gateway.nextOutcome();
    const req = openPost(gateway);
    req.end(imageForm(png));
    await until(() => gateway.requests[0]?.readableEnded === true);
    req.destroy();
    expect(await outcome).toEqual({ outcome: "client_gone" });
    await until(async () => (await upstream.connected()) === 0);
  });

  test("before its upload is even begun", async () => {
    const upstream = await givenUpstream();
    const { tunnel, ...gateway } = await givenGateway(upstream.url);
    const outcome = new Promise((resolve) => {
      const late = http.createServer((req, res) =>
        req.on("close", async () => {
          late.close();
          resolve(await tunnel.send({ req, res }, "req-1", { beforeRead: () => expect.unreachable() }));
        }),
      );
      late.listen(0, "127.0.0.1", () => {
        const { port } = late.address() as net.AddressInfo;
        const req = openPost({ ...gateway, tunnel, port });
        req.write(imageForm(png).subarray(0, 100));
        late.on("request", () => req.destroy());
      });
    });
    expect(await outcome).toEqual({ outcome: "client_gone" });
  });

  test("half-closed within its form", async () => {
    const upstream = await givenUpstream();
    const gateway = await givenGateway(upstream.url);
    const outcome = gateway.nextOutcome();
    const socket = net.connect(gateway.port, "127.0.0.1");
    socket.end(
      `POST / HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=a\r\nContent-Length: 99\r\n\r\n--a`,
    );
    expect(await outcome).toEqual({ outcome: "client_gone" });
  });
});

test("a slow upstream holds the client back: less than 1 MiB of 10 is in memory", async () => {
  let resume = () => {};
  let upstreamSocket: net.Socket | undefined;
  const raw = await givenRawUpstream((socket) => {
    upstreamSocket = socket;
    socket.pause();
    resume = () => socket.resume();
    let text = "";
    socket.on("data", (chunk) => {
      text = (text + chunk.toString("latin1")).slice(-100);
      if (text.endsWith("\r\n0\r\n\r\n"))
        socket.end(`HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n${JSON.stringify(UPLOADED)}`);
    });
    socket.pause();
  });
  const gateway = await givenGateway(raw.url, { idleTimeoutMs: IDLE_MS });
  const answer = post(gateway, imageForm(imageOfSize("image/png", FILE_BYTES_MAX)));
  await until(() => upstreamSocket !== undefined && gateway.requests[0]?.isPaused() === true);
  const { socket } = gateway.requests[0]!;
  // The kernel's buffers on the way are not ours: what counts is what came in and was not yet handed to the kernel.
  let pausedSinceMs = performance.now();
  await until(() => {
    if (!gateway.requests[0]!.isPaused()) pausedSinceMs = performance.now();
    return performance.now() - pausedSinceMs > 2 * IDLE_MS;
  });
  const handed = bytesHandedOver();
  expect(handed).toBeGreaterThan(0);
  expect(socket.bytesRead - handed).toBeLessThan(1_048_576);
  expect(socket.bytesRead).toBeLessThan(FILE_BYTES_MAX);
  expect(gateway.outcomes).toEqual([]); // Longer than the client's idle timeout: it is not the client who is slow.
  resume();
  expect((await answer).outcome).toBe("answered");

  function bytesHandedOver(): number {
    const { _getActiveHandles } = process as unknown as { _getActiveHandles(): unknown[] };
    const handles = _getActiveHandles();
    const own = handles.find(
      (handle): handle is net.Socket =>
        handle instanceof net.Socket && handle.localPort === upstreamSocket?.remotePort,
    );
    return own ? own.bytesWritten - own.writableLength : 0;
  }
});

test("an upload that is over leaves no timer, and a closed tunnel no connection", async () => {
  const upstream = await givenUpstream();
  // Longer than the test may take: no idle connection closes by itself.
  const gateway = await givenGateway(upstream.url, { keepAliveTimeoutMs: 600_000 });
  const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;
  const before = timers();
  expect((await post(gateway, imageForm(png))).outcome).toBe("answered");
  expect((await post(gateway, imageForm(png).subarray(0, -9))).outcome).toBe("refused");
  // Fewer if one of the test runner's own has gone off meanwhile.
  expect(timers()).toBeLessThanOrEqual(before);
  expect((await post(gateway, imageForm(png))).outcome).toBe("answered");
  expect(await upstream.connected()).toBeGreaterThan(0);
  gateway.tunnel.close();
  await until(async () => (await upstream.connected()) === 0);
});

test("a URL or a key that cannot be sent fails at start", async () => {
  const upstream = await givenUpstream();
  await expect(givenGateway(upstream.url, { apiKey: "a\r\nb" })).rejects.toThrow(TypeError);
  await expect(givenGateway("upstream")).rejects.toThrow(TypeError);
});

test("a request id that cannot be sent is thrown before anything is read", async () => {
  const { tunnel } = await givenGateway("http://upstream.invalid");
  const beforeRead = () => expect.unreachable();
  const headers = { "content-type": "multipart/form-data; boundary=a" };
  const req = { headers, destroyed: true } as IncomingMessage;
  const res = new http.ServerResponse(new http.IncomingMessage(new net.Socket()));
  await expect(tunnel.send({ req, res }, "a\r\nb", { beforeRead })).rejects.toThrow(TypeError);
});
