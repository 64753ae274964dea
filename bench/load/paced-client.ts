// An open loop: requests fall due at a fixed rate, whatever became of those before. A process of its own: its
// argument is a file of JSON (PacedJob), and it prints one line of JSON (PacedResult).
//
// A request counts from the moment when it was due. If no connection is free then, its wait for one counts too: that is
// what a customer would feel, and what a closed loop leaves out ("coordinated omission"). Only the client's own lateness
// is taken off: a timer that fires late makes its requests due late.
import { readFileSync } from "node:fs";
import { connect, type Socket } from "node:net";

export interface PacedJob {
  host: string;
  port: number;
  /** Whole requests as bytes, sent in turn. */
  requests: string[];
  connections: number;
  perSecond: number;
  seconds: number;
}

export interface PacedResult {
  requests: number;
  /** Answers whose status is not 200. */
  unsuccessful: number;
  p50Us: number;
  p90Us: number;
  p99Us: number;
  p999Us: number;
  maxUs: number;
}

/** A server that leaves so many waiting does not bear the rate; going on would take for ever. */
const WAITING_MAX = 10_000;

interface Connection {
  socket: Socket;
  /** When the request under way was due, ms; undefined while there is none. */
  dueMs: number | undefined;
  received: string;
}

const job = JSON.parse(readFileSync(process.argv[2] ?? "", "utf8")) as PacedJob;
const requests = job.requests.map((text) => Buffer.from(text, "latin1"));
const total = job.perSecond * job.seconds;
const latenciesMs: number[] = [];
const waiting: number[] = [];
const free: Connection[] = [];
let unsuccessful = 0;
let made = 0;
let sent = 0;

function send(connection: Connection, dueMs: number): void {
  connection.dueMs = dueMs;
  connection.socket.write(requests[sent++ % requests.length]!);
}

function received(connection: Connection, text: string): void {
  connection.received += text;
  if (!isComplete(connection.received)) return;
  latenciesMs.push(performance.now() - connection.dueMs!);
  if (!connection.received.startsWith("HTTP/1.1 200 ")) unsuccessful++;
  connection.received = "";
  connection.dueMs = undefined;
  const next = waiting.shift();
  if (next === undefined) free.push(connection);
  else send(connection, next);
  if (latenciesMs.length === total) finish();
}

/** True once an answer with a length or in chunks is complete. */
function isComplete(text: string): boolean {
  const head = text.indexOf("\r\n\r\n");
  if (head < 0) return false;
  const length = /\r\ncontent-length: *(\d+)/i.exec(text.slice(0, head + 2))?.[1];
  return length === undefined ? text.endsWith("0\r\n\r\n") : text.length >= head + 4 + Number(length);
}

function finish(): void {
  const sorted = Float64Array.from(latenciesMs).sort();
  const at = (share: number): number => Math.round(sorted[Math.ceil(share * total) - 1]! * 1000);
  const result: PacedResult = {
    requests: total,
    unsuccessful,
    p50Us: at(0.5),
    p90Us: at(0.9),
    p99Us: at(0.99),
    p999Us: at(0.999),
    maxUs: at(1),
  };
  process.stdout.write(`${JSON.stringify(result)}\n`, () => process.exit());
}

async function openAll(): Promise<void> {
  for (let n = 0; n < job.connections; n++) {
    const socket = connect({ host: job.host, port: job.port, noDelay: true });
    const connection: Connection = { socket, dueMs: undefined, received: "" };
    socket.setEncoding("latin1");
    socket.on("data", (text: string) => received(connection, text));
    for (const event of ["error", "close"] as const) {
      socket.on(event, () => {
        process.stderr.write(`a connection ended after ${latenciesMs.length} answers\n`);
        process.exit(1);
      });
    }
    await new Promise((resolve) => socket.once("connect", resolve));
    free.push(connection);
  }
}

await openAll();
const startedMs = performance.now();
const ticking = setInterval(() => {
  const nowMs = performance.now();
  const due = Math.min(total, Math.floor(((nowMs - startedMs) / 1000) * job.perSecond));
  for (; made < due; made++) {
    const connection = free.shift();
    if (connection) send(connection, nowMs);
    else waiting.push(nowMs);
  }
  if (waiting.length > WAITING_MAX) {
    process.stderr.write(`the server does not keep up: ${waiting.length} requests wait for a connection\n`);
    process.exit(1);
  }
  if (made === total) clearInterval(ticking);
}, 1);
