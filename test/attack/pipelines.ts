import { connect } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { atOnce, type Tally } from "./wire.ts";

const READ_BYTES = 64 * 1024;
/** Of "HTTP/1.1 200", the digits. */
const STATUS = ["HTTP/1.1 ".length, "HTTP/1.1 200".length] as const;
const STATUS_MAX = 999;
const H = "H".charCodeAt(0);
const SECOND_MS = 1000;
const REFUSED_PAUSE_MS = 50;
const PACE_EVERY_MS = 1;
/** Requests that are more than this late are never sent: a server that stood still for a moment is not flooded. */
const BEHIND_MS = 100;
/** In this share of the time the connections are opened, and a few requests compile the server. */
const RAMP_SHARE = 0.25;
const RAMP_RATE_SHARE = 0.1;

interface PacedOptions {
  url: string;
  connections: number;
  /** The connections take turns with these addresses. */
  from: readonly string[];
  /** As `performance.now()` counts. */
  untilMs: number;
  /** At most so many are sent, over all connections; as many as are answered when left out. */
  perSecond?: number;
  /** A request without a body, in ASCII. */
  request(nth: number): string;
}

/**
 * Sends requests over many connections, on each the next one once the one before it is answered, until the time is up. For attacks whose
 * rate counts: a request takes this process a third of what it takes in `pipeline`.
 * @returns the answers in each whole second since all connections were opened
 */
export async function sendPaced(tally: Tally, options: PacedOptions): Promise<number[]> {
  const { connections, untilMs, perSecond = Number.POSITIVE_INFINITY } = options;
  const beganMs = performance.now();
  const rampMs = RAMP_SHARE * (untilMs - beganMs);
  const fromMs = beganMs + rampMs;
  const seconds = new Array<number>(Math.floor((untilMs - fromMs) / SECOND_MS)).fill(0);
  const statuses = new Uint32Array(STATUS_MAX + 1);
  const answered = (status: number, nowMs: number): void => {
    statuses[status]!++;
    const second = Math.floor((nowMs - fromMs) / SECOND_MS);
    if (second >= 0 && second < seconds.length) seconds[second]!++;
  };
  const turns: Paced = {
    ...options,
    buffer: Buffer.alloc(READ_BYTES),
    sent: 0,
    waiting: [],
    answered,
    ...paceOf(perSecond, fromMs),
  };
  const pacing = setInterval(() => {
    while (turns.waiting.length > 0 && turns.mayTake()) turns.waiting.shift()!();
  }, PACE_EVERY_MS);
  await atOnce(connections, async (nth) => {
    await pause((nth / connections) * rampMs);
    while (performance.now() < untilMs) {
      if (!(await sendOn(tally, turns, nth))) await pause(REFUSED_PAUSE_MS);
    }
  });
  clearInterval(pacing);
  for (const [status, count] of statuses.entries()) {
    if (count > 0) tally.answers[status] = (tally.answers[status] ?? 0) + count;
  }
  return seconds;
}

/** Takes one of so many a second, if there is one; of fewer before `fullFromMs`. */
function paceOf(fullPerSecond: number, fullFromMs: number): { mayTake(): boolean } {
  let left = 0;
  let atMs = performance.now();
  return {
    mayTake() {
      const nowMs = performance.now();
      const perSecond = nowMs < fullFromMs ? RAMP_RATE_SHARE * fullPerSecond : fullPerSecond;
      left = Math.min(left + ((nowMs - atMs) / SECOND_MS) * perSecond, (BEHIND_MS / SECOND_MS) * perSecond);
      atMs = nowMs;
      if (left < 1) return false;
      left--;
      return true;
    },
  };
}

interface Paced extends PacedOptions {
  /** All connections read into it, and none keeps what it read. */
  buffer: Buffer;
  sent: number;
  /** Send the next request of a connection. */
  waiting: (() => void)[];
  mayTake(): boolean;
  answered(status: number, nowMs: number): void;
}

/** One connection, until it or the time ends. @returns whether it was accepted */
async function sendOn(tally: Tally, turns: Paced, nth: number): Promise<boolean> {
  const { buffer, from, request, answered, untilMs } = turns;
  const { hostname, port } = new URL(turns.url);
  const { promise, resolve } = Promise.withResolvers<boolean>();
  let accepted = false;
  const send = (): void => {
    const text = request(turns.sent++);
    tally.requests++;
    tally.bytes += text.length;
    socket.write(text, "latin1");
  };
  const callback = (): boolean => {
    // The rest of an answer says nothing.
    if (buffer[0] !== H) return true;
    const nowMs = performance.now();
    answered(Number(buffer.toString("latin1", ...STATUS)), nowMs);
    if (nowMs >= untilMs) socket.destroy();
    else if (turns.mayTake()) send();
    else turns.waiting.push(send);
    return true;
  };
  const socket = connect({
    host: hostname,
    port: Number(port),
    localAddress: from[nth % from.length]!,
    noDelay: true,
    onread: { buffer, callback },
  });
  const timer = setTimeout(() => socket.destroy(), Math.max(0, untilMs + SECOND_MS - performance.now()));
  socket.on("error", () => undefined);
  socket.on("connect", () => {
    accepted = true;
    tally.connections++;
    send();
  });
  socket.on("close", () => {
    clearTimeout(timer);
    resolve(accepted);
  });
  return promise;
}

const BARE_SERVER = `
const { createServer } = require("node:http");
const { parentPort } = require("node:worker_threads");
const server = createServer((_, res) => {
  res.writeHead(404, { "content-length": 0 });
  res.end();
});
server.listen(0, "127.0.0.1", () => parentPort.postMessage(server.address().port));
`;

/** A server of Node's own that does nothing but answer 404: what this machine can do at all, beside whatever else it does. */
export async function startBareServer(): Promise<{ url: string; stop(): Promise<unknown> }> {
  const worker = new Worker(BARE_SERVER, { eval: true });
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  worker.once("message", resolve);
  worker.once("error", reject);
  const port = await promise;
  return { url: `http://127.0.0.1:${port}`, stop: () => worker.terminate() };
}
