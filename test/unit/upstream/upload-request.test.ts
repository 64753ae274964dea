import http from "node:http";
import net from "node:net";
import { afterEach, expect, onTestFinished, test } from "vitest";
import { openUpload } from "../../../src/upstream/upload-request.ts";
import { closeStage, givenRawUpstream, givenUpstream, until } from "./upload-stage.ts";

afterEach(closeStage);

function open(url: string) {
  const agent = new http.Agent({ keepAlive: true });
  onTestFinished(() => agent.destroy());
  const failures: string[] = [];
  const target = {
    url: new URL(url),
    agent,
    apiKey: undefined,
    ownHeaders: [],
    connectTimeoutMs: 2_000,
  };
  const form = { path: "/api/v1/upload", headers: [], fields: [], fileField: "file" };
  const events = { answer: () => {}, failed: (detail: string) => void failures.push(detail) };
  const req = Object.assign(new http.IncomingMessage(new net.Socket()), { method: "POST" });
  const client = { req, res: new http.ServerResponse(req) };
  return { upload: openUpload(client, target, "image/png", {}, events, form), failures };
}

/** Bytes whose memory is theirs alone. */
const ownBytes = (length: number, fill: string): Buffer => Buffer.from(new ArrayBuffer(length)).fill(fill);

test("memory of a file's bytes is given back once they have left, where it is theirs alone", async () => {
  const upstream = await givenUpstream();
  const { upload } = open(upstream.url);
  const own = ownBytes(50_000, "a");
  const shared = ownBytes(50_001, "b");
  upload.file.write(own);
  upload.file.write(shared.subarray(1));
  expect(own).toHaveLength(50_000); // It is not with the kernel yet.
  upload.complete();
  await until(() => upstream.received.length === 1);
  expect(own).toHaveLength(0);
  expect(shared).toEqual(Buffer.alloc(50_001, "b"));
  expect(upstream.received[0]!.body.includes("a".repeat(50_000) + "b".repeat(50_000))).toBe(true);
  upload.release();
});

// Guarantee: no memory is freed that the kernel may still read.
test("bytes that an upstream does not take keep their memory, also when the upload is broken off", async () => {
  const upstream = await givenRawUpstream((socket) => void socket.pause());
  const { upload, failures } = open(upstream.url);
  const first = ownBytes(65_536, "a");
  upload.file.write(first);
  await until(() => first.length === 0);
  // Far more than the buffers on the way can hold.
  const chunks = Array.from({ length: 500 }, () => ownBytes(65_536, "a"));
  for (const chunk of chunks) upload.file.write(chunk);
  await new Promise((resolve) => setImmediate(resolve));
  upload.release();
  await until(() => failures.length > 0);
  await new Promise((resolve) => setImmediate(resolve));
  expect(chunks.filter((chunk) => chunk.length > 0).length).toBeGreaterThan(400);
});

// Guarantee: what an upstream sends without end is bounded by number, not only by time.
test("interim answers without end break off the upload", async () => {
  const upstream = await givenRawUpstream((socket) => {
    const flood = (): void => {
      while (!socket.destroyed && socket.write("HTTP/1.1 102 Processing\r\n\r\n".repeat(100)));
    };
    socket.on("drain", flood).once("data", flood);
  });
  const { upload, failures } = open(upstream.url);
  upload.complete();
  await until(() => failures.length > 0);
  expect(failures).toContain("more than 1000 interim answers");
});
