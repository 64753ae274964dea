import { createConnection } from "node:net";
import { parentPort, workerData } from "node:worker_threads";

// A connection to Redis that sends PING every millisecond for as long as it is told to, and says how long the slowest answer took.

const PONG_BYTES = "+PONG\r\n".length;

const { hostname, port } = new URL(workerData);
const socket = createConnection({ host: hostname, port: Number(port), noDelay: true });
/** When the PINGs without an answer were sent. */
const sentMs: number[] = [];
let [bytes, worstMs] = [0, 0];
let timer: NodeJS.Timeout | undefined;

socket.on("data", (data: Buffer) => {
  bytes += data.length;
  for (; bytes >= PONG_BYTES; bytes -= PONG_BYTES)
    worstMs = Math.max(worstMs, performance.now() - sentMs.shift()!);
});

function ping(): void {
  sentMs.push(performance.now());
  socket.write("PING\r\n");
}

parentPort!.on("message", (isOn: boolean) => {
  clearInterval(timer);
  const waitedMs = sentMs.length > 0 ? performance.now() - sentMs[0]! : 0;
  parentPort!.postMessage(Math.max(worstMs, waitedMs));
  worstMs = 0;
  if (isOn) timer = setInterval(ping, 1);
});
