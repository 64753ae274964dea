// The honest customer, a process of its own: its argument is a file of JSON (HonestJob). It sends requests at a steady low
// rate until it gets SIGTERM, and prints one line of JSON (Sample) for each. A request counts from the moment when it
// was due, whatever became of those before.
import { readFileSync } from "node:fs";
import { Agent, request as send } from "node:http";
import { TEXT_TO_VIDEO } from "./attack.ts";

export interface HonestJob {
  url: string;
  key: string;
  perSecond: number;
}

export type Kind = "credits" | "poll" | "generate" | "upload";

/** One request of the honest customer. */
export interface Sample {
  kind: Kind;
  /** Unix ms. */
  dueMs: number;
  /** From when it was due until the last byte of its answer, ms. */
  tookMs: number;
  /** How late this process itself was to send it, ms; `tookMs` is without. */
  lateMs: number;
  /** HTTP status; 0: no answer came. */
  status: number;
  /** Why none came, or the message of a refusal; empty for a 200. */
  reason: string;
}

const PATIENCE_MS = 20_000;
/** The customer's day in small. */
const KINDS: readonly Kind[] = [
  "generate",
  "poll",
  "credits",
  "poll",
  "generate",
  "poll",
  "credits",
  "poll",
  "upload",
  "poll",
];
/** Each so-manieth request comes on a connection of its own, as new customers' do. */
const NEW_CONNECTION_EACH = 4;
const TASKS_KEPT = 20;
/** Lateness is measured: waking up more often would only take from the machine. */
const TICK_MS = 10;

const job = JSON.parse(readFileSync(process.argv[2] ?? "", "utf8")) as HonestJob;
const agent = new Agent({ keepAlive: true, maxSockets: 64 });
const tasks: string[] = [];
const startedMs = performance.now();
let made = 0;
let open = 0;
let stopping = false;

const BOUNDARY = "form-of-an-honest-customer";
const FORM = Buffer.concat([
  Buffer.from(
    `--${BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n`,
  ),
  Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
  Buffer.alloc(2048, 1),
  Buffer.from(`\r\n--${BOUNDARY}--\r\n`),
]);

/** Method, path, body and its type. */
function requestOf(kind: Kind, nth: number): [string, string, (string | Buffer)?, string?] {
  switch (kind) {
    case "credits":
      return ["GET", "/api/v1/credits"];
    case "poll": {
      const task = tasks[nth % Math.max(1, tasks.length)];
      return task === undefined ? ["GET", "/api/v1/credits"] : ["GET", `/api/v1/tasks/${task}`];
    }
    case "generate":
      return ["POST", TEXT_TO_VIDEO, JSON.stringify({ prompt: `A boat, ${nth}` }), "application/json"];
    case "upload":
      return ["POST", "/api/v1/upload", FORM, `multipart/form-data; boundary=${BOUNDARY}`];
  }
}

function ask(nth: number, dueAtMs: number): void {
  const kind = KINDS[nth % KINDS.length]!;
  const [method, path, body, type] = requestOf(kind, nth);
  const sentMs = performance.now();
  const lateMs = sentMs - dueAtMs;
  const dueMs = Date.now() - lateMs;
  const headers: Record<string, string | number> = { authorization: `Bearer ${job.key}` };
  if (body !== undefined && type !== undefined) {
    headers["content-type"] = type;
    headers["content-length"] = Buffer.byteLength(body);
  }
  open++;
  let ended = false;
  const end = (status: number, text: string): void => {
    if (ended) return;
    ended = true;
    clearTimeout(timer);
    if (status === 200 && kind === "generate") remember(text);
    const reason = status === 200 ? "" : text.slice(0, 200);
    report({ kind, dueMs, tookMs: performance.now() - sentMs, lateMs, status, reason });
  };
  const request = send(job.url + path, {
    method,
    headers,
    agent: nth % NEW_CONNECTION_EACH === 0 ? false : agent,
  });
  const timer = setTimeout(() => {
    end(0, "no answer in 20 s");
    request.destroy();
  }, PATIENCE_MS);
  request.on("error", (error: NodeJS.ErrnoException) => end(0, error.code ?? error.message));
  request.on("response", (response) => {
    let text = "";
    response.setEncoding("utf8").on("data", (part: string) => {
      text += part;
    });
    response.on("end", () => end(response.statusCode ?? 0, text));
    response.on("error", (error) => end(0, error.message));
  });
  request.end(body);
}

function remember(text: string): void {
  const task = (JSON.parse(text) as { data?: { task_id?: string } }).data?.task_id;
  if (task === undefined) return;
  tasks.push(task);
  if (tasks.length > TASKS_KEPT) tasks.shift();
}

function report(sample: Sample): void {
  process.stdout.write(`${JSON.stringify(sample)}\n`);
  open--;
  if (stopping && open === 0) process.exit();
}

const ticking = setInterval(() => {
  const due = Math.floor(((performance.now() - startedMs) / 1000) * job.perSecond);
  for (; made < due; made++) ask(made, startedMs + ((made + 1) * 1000) / job.perSecond);
}, TICK_MS);

process.once("SIGTERM", () => {
  stopping = true;
  clearInterval(ticking);
  if (open === 0) process.exit();
});
