// Receives webhooks of the gateway: verifies, stores, answers, and only then works. See README.md.
import {
  appendFileSync,
  closeSync,
  existsSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readFileSync,
} from "node:fs";
import { createServer, type IncomingMessage } from "node:http";
import { Webhook } from "standardwebhooks";

const { WEBHOOK_SECRETS = "", PORT = "3000", INBOX = "inbox.jsonl" } = process.env;
/** One secret, or two while it is rotated, with a space between them. */
const verifiers = WEBHOOK_SECRETS.split(" ")
  .filter(Boolean)
  .map((secret) => new Webhook(secret));
if (verifiers.length === 0) throw new Error("set WEBHOOK_SECRETS to the secret of the endpoint");
/** The gateway sends at most 20 KiB. */
const BODY_BYTES_MAX = 64 * 1024;

/** A message as the inbox keeps it, one a line. */
interface Stored {
  id: string;
  message: { type: string; data: { task_id?: string } };
}

const found = existsSync(INBOX) ? readFileSync(INBOX, "utf8") : "";
const stored = found.slice(0, found.lastIndexOf("\n") + 1);
/** Ids of the messages that are in the inbox: a message may come twice. A shop would ask its database. */
const ids = new Set(
  stored
    .split("\n")
    .filter(Boolean)
    .map((line) => (JSON.parse(line) as Stored).id),
);
const inbox = openSync(INBOX, "a");
// A message that a crash cut was not answered, and comes again.
ftruncateSync(inbox, Buffer.byteLength(stored));

async function bodyOf(request: IncomingMessage): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > BODY_BYTES_MAX) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

/** The message, if the gateway has signed it in the last five minutes. */
function verified(body: string, headers: IncomingMessage["headers"]): Stored["message"] | undefined {
  for (const verifier of verifiers) {
    try {
      return verifier.verify(body, headers as Record<string, string>) as Stored["message"];
    } catch {
      // Perhaps the other secret.
    }
  }
  return undefined;
}

/** On the disk before the answer: what has been answered 2xx does not come again. */
function store(one: Stored): void {
  appendFileSync(inbox, `${JSON.stringify(one)}\n`);
  fsyncSync(inbox);
  ids.add(one.id);
}

/** The shop's own work for a message; the gateway does not repeat a failure here. */
function work({ id, message: { type, data } }: Stored): void {
  console.log(`${type} ${data.task_id ?? ""} (${id})`);
}

const server = createServer(async (request, response) => {
  const body = request.method === "POST" ? await bodyOf(request).catch(() => undefined) : undefined;
  const message = body === undefined ? undefined : verified(body, request.headers);
  if (message === undefined) return void response.writeHead(401).end();
  const one = { id: String(request.headers["webhook-id"]), message };
  const isNew = !ids.has(one.id);
  if (isNew) store(one);
  response.writeHead(204).end();
  if (isNew) work(one);
});
server.listen(Number(PORT), () => console.log(`listening on ${PORT}`));
process.on("SIGTERM", () => {
  server.close();
  closeSync(inbox);
});
