import { EventEmitter } from "node:events";
import type { IncomingMessage } from "node:http";
import { Readable } from "node:stream";
import { expect, test } from "vitest";
import { readUpload } from "../../../src/upstream/upload-body.ts";

const PNG = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
const FILE = Buffer.concat([PNG, Buffer.from(Array.from({ length: 5000 }, (_, at) => at % 251))]);
const END = Buffer.from("\r\n--b--\r\n");
const FORM = Buffer.concat([
  Buffer.from(
    '--b\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n',
  ),
  FILE,
  END,
]);

/**
 * The writes by which a form reaches the upstream that the client sends in these pieces, all in one tick.
 * @param options.isFull whether the upstream is full after each write
 */
async function writesOf(pieces: readonly Buffer[], { isFull = false } = {}): Promise<Buffer[]> {
  const req = Object.assign(new Readable({ read: () => undefined }), { socket: new EventEmitter() });
  const writes: Buffer[] = [];
  let drained = (): void => undefined;
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const reading = readUpload(
    req as unknown as IncomingMessage,
    "b",
    { idleTimeoutMs: 60_000, minBytesPerSecond: 0 },
    {
      image: () => ({
        write: (bytes: Buffer) => writes.push(bytes) > 0 && !isFull,
        onDrain: (listener) => {
          drained = listener;
        },
      }),
      whole: () => resolve(),
      refused: (refusal) => reject(new Error(JSON.stringify(refusal))),
      gone: () => reject(new Error("gone")),
    },
  );
  for (const piece of pieces) req.push(piece);
  req.push(null);
  // A full sink drains after each tick.
  const draining = setInterval(() => drained(), 1);
  await promise.finally(() => clearInterval(draining));
  reading.stop();
  return writes;
}

// Guarantee: chunks of one byte cost neither a write nor a buffer each.
test("small pieces of one tick reach the upstream together, and whole", async () => {
  const writes = await writesOf([...FORM].map((byte) => Buffer.from([byte])));
  expect(Buffer.concat(writes)).toEqual(FILE);
  expect(writes.length).toBeLessThan(10);
});

test.each([1, 2, 7, 1023, 1024, 1025, 4000])(
  "pieces of %i bytes and small ones between keep their order",
  async (size) => {
    const pieces: Buffer[] = [];
    for (let at = 0, small = false; at < FORM.length; small = !small) {
      const length = small ? 3 : size;
      pieces.push(FORM.subarray(at, at + length));
      at += length;
    }
    expect(Buffer.concat(await writesOf(pieces))).toEqual(FILE);
  },
);

test("a full sink pauses the body, and what was gathered is written once", async () => {
  const writes = await writesOf(
    [...FORM].map((byte) => Buffer.from([byte])),
    { isFull: true },
  );
  expect(Buffer.concat(writes)).toEqual(FILE);
});
