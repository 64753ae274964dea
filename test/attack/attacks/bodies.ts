import { setTimeout as pause } from "node:timers/promises";
import { createRandom } from "../../fault/random.ts";
import { type Attack, TEXT_TO_VIDEO } from "../attack.ts";
import { atOnce, Connection, deadlineOf, post, postHead, scaled, Tally } from "../wire.ts";

const STORYBOARD = "/api/v1/gen2-pro/storyboard";
const UPLOAD_BYTES = 5_000_000;

/** Uploads that hold what they have taken. */
export const dripping: Attack = {
  name: "dripping-uploads",
  title: "260 uploads of one key that send a byte every 5 s, begun again when they are ended, for 12 s",
  durationMs: 12_000,
  async send(target) {
    const tally = new Tally();
    const untilMs = deadlineOf(target);
    const head = [
      "POST /api/v1/upload HTTP/1.1",
      "Host: a",
      `Authorization: Bearer ${target.paidKey}`,
      "Content-Type: multipart/form-data; boundary=b",
      `Content-Length: ${UPLOAD_BYTES}`,
      "",
      '--b\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n',
    ].join("\r\n");
    await atOnce(scaled(target, 260), async () => {
      while (performance.now() < untilMs) {
        const connection = await Connection.open(tally, target.url);
        await connection?.send(head, 1, untilMs);
        while (connection && !connection.closed && performance.now() < untilMs) {
          await connection.answered(1, Math.min(untilMs, performance.now() + 5000));
          await connection.send("a", 0, untilMs);
          if (connection.statuses.length > 0) break;
        }
        connection?.destroy();
        await pause(Math.min(1000, Math.max(0, untilMs - performance.now())));
      }
    });
    return tally;
  },
};

const BODY_BYTES = 255 * 1024;

/** Bodies of which the last byte never comes. */
export const endlessBodies: Attack = {
  name: "endless-bodies",
  title: "2,000 bodies of 255 KiB, each without its last byte, of one key from three addresses, for 12 s",
  durationMs: 12_000,
  async send(target) {
    const tally = new Tally();
    const untilMs = deadlineOf(target);
    const head = postHead(TEXT_TO_VIDEO, target.paidKey, BODY_BYTES);
    const body = Buffer.alloc(BODY_BYTES - 1, 0x20);
    const connections = await atOnce(scaled(target, 2000), async (nth) => {
      const connection = await Connection.open(tally, target.url, { from: `127.0.0.${2 + (nth % 3)}` });
      await connection?.send(head, 1, untilMs);
      await connection?.send(body, 0, untilMs);
      return connection;
    });
    await pause(Math.max(0, untilMs - performance.now()));
    for (const connection of connections) connection?.destroy();
    return tally;
  },
};

/** Bodies that are refused, each of which once cost much more than it took to send. */
const REFUSED: readonly [path: string, body: string][] = [
  [STORYBOARD, JSON.stringify({ nFrames: "10", shots: new Array(32_000).fill("x") })],
  [STORYBOARD, `{"nFrames":"10","shots":[${new Array(80_000).fill("{}").join(",")}]}`],
  [TEXT_TO_VIDEO, `{"prompt":"${"\\ud800".repeat(7400)}"}`],
  [
    TEXT_TO_VIDEO,
    `{${Array.from({ length: 7400 }, (_, nth) => `"\\ud8${(nth % 90) + 10}${nth}":1`).join(",")}}`,
  ],
  [TEXT_TO_VIDEO, `{"prompt":"a","aspectRatio":${"9".repeat(262_000 - 30)}}`],
  [TEXT_TO_VIDEO, `{"prompt":"a","aspectRatio":"${"<".repeat(262_000 - 40)}"}`],
  [TEXT_TO_VIDEO, "[".repeat(262_000)],
];

/** Mistakes that are dear to find or to name. */
export const refusedBodies: Attack = {
  name: "refused-bodies",
  title:
    "8 connections send bodies of up to 256 KiB that are refused, in any order: 32,000 unknown shots, half surrogates, huge wrong values, nested brackets; for 8 s",
  durationMs: 8000,
  async send(target) {
    const tally = new Tally();
    const untilMs = deadlineOf(target);
    const random = createRandom(target.seed);
    const requests = REFUSED.map(([path, body]) => post(path, target.poorKey, body));
    await atOnce(8, async () => {
      let connection: Connection | undefined;
      while (performance.now() < untilMs) {
        if (!connection || connection.closed) connection = await Connection.open(tally, target.url);
        if (!connection) continue;
        await connection.ask(random.pick(requests), untilMs);
      }
      connection?.destroy();
    });
    tally.check(
      "all are refused",
      tally.count(200, 399) === 0,
      `${tally.count(200, 399)} answered 2xx or 3xx`,
    );
    return tally;
  },
};

const PIECE = "1\r\na\r\n";
const PIECES_PER_WRITE = 10_000;
const CHUNK_BYTES_EACH = 4_400_000;

/** Chunks of one byte behind a request that is refused already. */
export const smallChunks: Attack = {
  name: "small-chunks",
  title:
    "20 connections send 4.4 MB each in chunks of one byte behind a request that is refused from its head, and again for 8 s",
  durationMs: 8000,
  async send(target) {
    const tally = new Tally();
    const untilMs = deadlineOf(target);
    const head = `POST ${TEXT_TO_VIDEO} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n`;
    const pieces = Buffer.from(PIECE.repeat(PIECES_PER_WRITE));
    await atOnce(scaled(target, 20), async () => {
      while (performance.now() < untilMs) {
        const connection = await Connection.open(tally, target.url);
        await connection?.send(head, 1, untilMs);
        for (let bytes = 0; bytes < CHUNK_BYTES_EACH; bytes += pieces.length) {
          if (!(await connection?.send(pieces, 0, untilMs))) break;
        }
        connection?.destroy();
      }
    });
    tally.check(
      "all are refused",
      tally.count(200, 399) === 0,
      `${tally.count(200, 399)} answered 2xx or 3xx`,
    );
    return tally;
  },
};
