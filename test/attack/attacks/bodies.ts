import { setTimeout as pause } from "node:timers/promises";
import { createRandom } from "../../fault/random.ts";
import { ATTACKER_ADDRESS, type Attack, type Target, TEXT_TO_VIDEO } from "../attack.ts";
import { atOnce, Connection, deadlineOf, post, postHead, scaled, Tally } from "../wire.ts";

const STORYBOARD = "/api/v1/gen2-pro/storyboard";
const UPLOAD_BYTES = 5_000_000;
const PART =
  '--b\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n';
const PNG = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);

/** The head of an upload, without the empty line behind it. */
const uploadHead = (key: string, bodyHeader: string): string =>
  [
    "POST /api/v1/upload HTTP/1.1",
    "Host: a",
    `Authorization: Bearer ${key}`,
    "Content-Type: multipart/form-data; boundary=b",
    bodyHeader,
  ].join("\r\n");

/** Uploads that hold what they have taken. */
export const dripping: Attack = {
  name: "dripping-uploads",
  title: "260 uploads of one key that send a byte every 5 s, begun again when they are ended, for 12 s",
  durationMs: 12_000,
  async send(target) {
    const tally = new Tally();
    const untilMs = deadlineOf(target);
    const head = `${uploadHead(target.paidKey, `Content-Length: ${UPLOAD_BYTES}`)}\r\n\r\n${PART}`;
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

const DRIPS_EACH_MS = 20;
const DRIPS = Buffer.from("1\r\na\r\n".repeat(100));
const UPLOAD_MS_MAX = 2000;

/** Uploads in the smallest of chunks, by one of several customers behind a proxy. */
export const drippingChunks: Attack = {
  name: "dripping-chunks",
  title:
    "60 uploads of one key in chunks of one byte, 5,000 a second each, for 9 s, and uploads of 5 MB by another account through the same proxy",
  durationMs: 9000,
  config: { server: { trust_proxy: [ATTACKER_ADDRESS] } },
  send: (target) => drip(target, 60, "another account's uploads through the same proxy"),
};

/** More of them, by one of two customers who share an address that is no proxy's. */
export const drippingNeighbour: Attack = {
  name: "dripping-neighbour",
  title:
    "300 uploads of one key in chunks of one byte, 5,000 a second each, for 9 s, and uploads of 5 MB by another account from the same address, each on a new connection",
  durationMs: 9000,
  send: (target) => drip(target, 300, "another account's uploads from the same address"),
};

/** @param whose the uploads of the other account, as the check names them */
async function drip(target: Target, count: number, whose: string): Promise<Tally> {
  const tally = new Tally();
  const untilMs = deadlineOf(target);
  const head = uploadHead(target.paidKey, "Transfer-Encoding: chunked");
  const [, tookMs] = await Promise.all([
    atOnce(count, async () => {
      while (performance.now() < untilMs) {
        const connection = await Connection.open(tally, target.url);
        await connection?.send(`${head}\r\n\r\n`, 1, untilMs);
        while (await connection?.send(DRIPS, 0, untilMs)) await pause(DRIPS_EACH_MS);
        connection?.destroy();
      }
    }),
    uploadsOf(tally, target, untilMs),
  ]);
  tally.check(
    `${whose} take at most ${UPLOAD_MS_MAX} ms each`,
    tookMs.length > 0 && Math.max(...tookMs) <= UPLOAD_MS_MAX,
    `${tookMs.length} uploads, the slowest ${Math.round(Math.max(0, ...tookMs))} ms`,
  );
  return tally;
}

/** Uploads one file after the other, each on a new connection. @returns how long each took, ms */
async function uploadsOf(tally: Tally, { url, paidKeys }: Target, untilMs: number): Promise<number[]> {
  const end = "\r\n--b--\r\n";
  const file = Buffer.concat([PNG, Buffer.alloc(UPLOAD_BYTES)]);
  const length = PART.length + file.length + end.length;
  const head = uploadHead(paidKeys[0] ?? "", `Content-Length: ${length}`);
  const form = Buffer.concat([Buffer.from(`${head}\r\n\r\n${PART}`), file, Buffer.from(end)]);
  const tookMs: number[] = [];
  while (performance.now() < untilMs) {
    const fromMs = performance.now();
    const connection = await Connection.open(tally, url);
    // The last one may end after the attack.
    const status = (await connection?.ask(form, untilMs + UPLOAD_MS_MAX)) ?? 0;
    connection?.destroy();
    tookMs.push(status === 200 ? performance.now() - fromMs : Number.POSITIVE_INFINITY);
    if (status !== 200) break;
    await pause(250);
  }
  return tookMs;
}

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
    const refused = tally.count(429) + tally.count(503);
    tally.check(
      "most bodies are refused: one key may hold a quarter of their memory",
      refused >= scaled(target, 1000),
      refused,
    );
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
