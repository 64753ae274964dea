import { connect, type Socket } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import { ATTACKER_ADDRESS, type Check, type Sent, type Target } from "./attack.ts";

const CONNECT_TIMEOUT_MS = 5000;
/** Bytes that one connection may hold unsent before its sender waits. */
const UNSENT_BYTES_MAX = 1024 * 1024;
/** One less than the characters of a status line's beginning: a match that is cut in two is completed by the next chunk. */
const CARRIED_CHARS = "HTTP/1.1 200".length - 1;

/** Counts what one attack sends and gets back. */
export class Tally implements Sent {
  requests = 0;
  bytes = 0;
  connections = 0;
  answers: Record<string, number> = {};
  checks: Check[] = [];

  /** How many answers had this status, or any in the range. */
  count(from: number, to = from): number {
    return Object.entries(this.answers)
      .filter(([status]) => Number(status) >= from && Number(status) <= to)
      .reduce((sum, [, count]) => sum + count, 0);
  }

  check(what: string, met: boolean, figure: string | number): void {
    this.checks.push({ what, met, figure: String(figure) });
  }
}

/** A connection of the attacker that counts the answers on it. */
export class Connection {
  readonly socket: Socket;
  /** Statuses of the answers so far, oldest first. */
  readonly statuses: number[] = [];
  closed = false;
  readonly #tally: Tally;
  #carried = "";
  #wake: (() => void)[] = [];

  private constructor(tally: Tally, socket: Socket) {
    this.#tally = tally;
    this.socket = socket;
    socket.on("error", () => undefined);
    socket.on("close", () => {
      this.closed = true;
      this.#changed();
    });
    socket.on("drain", () => this.#changed());
  }

  /**
   * @param reads false for one that never takes an answer
   * @returns undefined when the connection was refused
   */
  static open(
    tally: Tally,
    url: string,
    { from = ATTACKER_ADDRESS, reads = true } = {},
  ): Promise<Connection | undefined> {
    const { hostname, port } = new URL(url);
    const socket = connect({ host: hostname, port: Number(port), localAddress: from, noDelay: true });
    const connection = new Connection(tally, socket);
    if (reads) socket.on("data", (chunk: Buffer) => connection.#read(chunk));
    else socket.pause();
    return new Promise((resolve) => {
      const timer = setTimeout(() => socket.destroy(), CONNECT_TIMEOUT_MS);
      socket.once("connect", () => {
        clearTimeout(timer);
        tally.connections++;
        resolve(connection);
      });
      socket.once("close", () => {
        clearTimeout(timer);
        resolve(undefined);
      });
    });
  }

  #read(chunk: Buffer): void {
    const text = this.#carried + chunk.toString("latin1");
    for (const [, status = ""] of text.matchAll(/HTTP\/1\.1 (\d{3})/g)) {
      // 100 Continue is no answer.
      if (status === "100") continue;
      this.statuses.push(Number(status));
      this.#tally.answers[status] = (this.#tally.answers[status] ?? 0) + 1;
    }
    this.#carried = text.slice(-CARRIED_CHARS);
    this.#changed();
  }

  #changed(): void {
    for (const wake of this.#wake.splice(0)) wake();
  }

  /** Resolves at the next answer, drain or end, or when the time is up. */
  async #next(untilMs: number): Promise<void> {
    const timer = new AbortController();
    const left = Math.max(0, untilMs - performance.now());
    const timedOut = pause(left, undefined, { signal: timer.signal }).catch(() => undefined);
    await Promise.race([timedOut, new Promise<void>((resolve) => this.#wake.push(resolve))]);
    timer.abort();
  }

  /** Sends so many requests, and waits while the other side takes nothing. @returns whether all could be sent */
  async send(bytes: Buffer | string, requests: number, untilMs: number): Promise<boolean> {
    while (!this.closed && this.socket.writableLength > UNSENT_BYTES_MAX && performance.now() < untilMs) {
      await this.#next(untilMs);
    }
    if (this.closed || performance.now() >= untilMs) return false;
    this.socket.write(bytes);
    this.#tally.requests += requests;
    this.#tally.bytes += bytes.length;
    return true;
  }

  /** Waits for that many answers in all. @returns whether they came */
  async answered(count: number, untilMs: number): Promise<boolean> {
    while (!this.closed && this.statuses.length < count && performance.now() < untilMs) {
      await this.#next(untilMs);
    }
    return this.statuses.length >= count;
  }

  /** Sends one request on this connection and waits for its answer. @returns its status; 0: none came */
  async ask(bytes: Buffer | string, untilMs: number): Promise<number> {
    const before = this.statuses.length;
    if (!(await this.send(bytes, 1, untilMs))) return 0;
    await this.answered(before + 1, untilMs);
    return this.statuses[before] ?? 0;
  }

  destroy(): void {
    this.socket.destroy();
  }
}

/** When this attack must have ended, as `performance.now()` counts. */
export const deadlineOf = ({ durationMs }: Target): number => performance.now() + durationMs;

/** A full amount, in the size of this run; at least one. */
export const scaled = (target: Target, full: number): number => Math.max(1, Math.round(full * target.scale));

/** Runs so many at once, each told its number. */
export async function atOnce<T>(count: number, work: (nth: number) => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: count }, (_, nth) => work(nth)));
}

interface PipelineOptions {
  connections: number;
  depth: number;
  total: number;
  request(nth: number): string;
  /** The connections take turns with these addresses; the attacker's alone when left out. */
  from?: readonly string[];
  /** As `performance.now()` counts; the end of the attack when left out. */
  untilMs?: number;
}

/**
 * Pipelines requests over many connections: each sends `depth` of them at once, waits for the answers, and goes on until
 * all are sent or the time is up. A connection that the gateway ends is opened anew.
 */
export async function pipeline(tally: Tally, target: Target, options: PipelineOptions): Promise<void> {
  const {
    connections,
    depth,
    total,
    request,
    from = [ATTACKER_ADDRESS],
    untilMs = deadlineOf(target),
  } = options;
  let sent = 0;
  await atOnce(connections, async (at) => {
    let connection: Connection | undefined;
    while (sent < total && performance.now() < untilMs) {
      if (connection === undefined || connection.closed) {
        connection = await Connection.open(tally, target.url, { from: from[at % from.length]! });
        // Refused: not at once again.
        if (connection === undefined) await pause(50);
        continue;
      }
      const size = Math.min(depth, total - sent);
      const first = sent;
      sent += size;
      const bytes = Array.from({ length: size }, (_, nth) => request(first + nth)).join("");
      const before = connection.statuses.length;
      await connection.send(bytes, size, untilMs);
      await connection.answered(before + size, untilMs);
    }
    connection?.destroy();
  });
}

/** A request as it goes over the wire. @param key none when left out */
export function get(path: string, key?: string): string {
  const authorization = key === undefined ? "" : `Authorization: Bearer ${key}\r\n`;
  return `GET ${path} HTTP/1.1\r\nHost: a\r\n${authorization}\r\n`;
}

/** A POST of JSON as it goes over the wire. */
export function post(path: string, key: string, body: string): string {
  return `${postHead(path, key, Buffer.byteLength(body))}${body}`;
}

/** The head of a POST of JSON that announces so many bytes. */
export function postHead(path: string, key: string, bodyBytes: number): string {
  const lines = [
    `POST ${path} HTTP/1.1`,
    "Host: a",
    `Authorization: Bearer ${key}`,
    "Content-Type: application/json",
    `Content-Length: ${bodyBytes}`,
  ];
  return `${lines.join("\r\n")}\r\n\r\n`;
}
