// A process of its own, so that the honest customer's calls do not wait for the campaign: its argument is a file of JSON
// (TwistedJob). It passes everything on to the generator, changes answers as the attack says, and prints its URL.
import { readFileSync } from "node:fs";
import { Agent, createServer, type IncomingMessage, type ServerResponse, request as send } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";
import type { Twist } from "./attack.ts";
import { ATTACKS } from "./attacks/index.ts";

export interface TwistedJob {
  attack: string;
  generatorUrl: string;
}

const PASSED_ON = ["authorization", "content-type", "content-length", "idempotency-key"];
const END_OF_OBJECT = Buffer.from("}");

const job = JSON.parse(readFileSync(process.argv[2] ?? "", "utf8")) as TwistedJob;
const agent = new Agent({ keepAlive: true });

function ask({ method = "", url = "", headers }: IncomingMessage, body: Buffer): Promise<IncomingMessage> {
  const passed = Object.fromEntries(
    PASSED_ON.flatMap((name) => (headers[name] ? [[name, headers[name]]] : [])),
  );
  return new Promise((resolve, reject) => {
    send(job.generatorUrl + url, { method, headers: passed, agent })
      .on("response", resolve)
      .on("error", reject)
      .end(body);
  });
}

async function forward(request: IncomingMessage, response: ServerResponse, twist: Twist): Promise<void> {
  const body = await buffer(request);
  const answered = await ask(request, body);
  const answer = await buffer(answered);
  const { method = "", url = "" } = request;
  const path = url.replace(/\?.*/s, "");
  const added = twist({ method, path, body: body.toString("utf8"), answer: answer.toString("utf8") });
  const parts = added === undefined ? [answer] : [answer.subarray(0, -1), added, END_OF_OBJECT];
  response.writeHead(answered.statusCode ?? 502, {
    "content-type": "application/json",
    "content-length": parts.reduce((sum, { length }) => sum + length, 0),
  });
  for (const part of parts) response.write(part);
  response.end();
}

const twist = ATTACKS.find(({ name }) => name === job.attack)?.twist?.();
if (twist === undefined) throw new Error(`${job.attack} has no twist`);
const server = createServer({ keepAliveTimeout: 65_000 }, (request, response) => {
  forward(request, response, twist).catch(() => response.destroy());
});
server.listen(0, "127.0.0.1", () => {
  process.stdout.write(`http://127.0.0.1:${(server.address() as AddressInfo).port}\n`);
});
process.once("SIGTERM", () => process.exit());
