import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type Generator, startGenerator } from "../../src/sandbox/generator/server.ts";

/** One answer of the upstream, before it goes to the gateway. */
export interface TwistedAnswer {
  method: string;
  /** Path without a query. */
  path: string;
  /** What the gateway sent, as text. */
  body: string;
  /** What the generator answers. */
  answer: string;
  /** The gateway's credential. */
  secret: string;
}

/** Gives the answer another text, or leaves it. */
export type Twist = (answer: TwistedAnswer) => string;

export interface AttackedUpstream {
  url: string;
  generator: Generator;
  stop(): Promise<void>;
}

/** The sandbox generator; with a twist, behind a server that changes its answers. */
export async function startUpstream(twist: Twist | undefined): Promise<AttackedUpstream> {
  const generator = await startGenerator();
  if (twist === undefined) return { url: generator.url, generator, stop: () => generator.stop() };
  const server = createServer({ keepAliveTimeout: 65_000 }, (request, response) => {
    forward(request, response, generator.url, twist).catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    generator,
    async stop() {
      server.closeAllConnections();
      server.close();
      await generator.stop();
    },
  };
}

async function forward(
  request: IncomingMessage,
  response: ServerResponse,
  generatorUrl: string,
  twist: Twist,
): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  const { method = "", url = "" } = request;
  const headers: Record<string, string> = {};
  for (const name of ["authorization", "content-type", "idempotency-key"]) {
    const value = request.headers[name];
    if (typeof value === "string") headers[name] = value;
  }
  const init: RequestInit = { method, headers };
  if (method === "POST") init.body = body;
  const answered = await fetch(generatorUrl + url, init);
  const answer = await answered.text();
  const secret = (headers.authorization ?? "").replace(/^Bearer /, "");
  const path = url.replace(/\?.*/s, "");
  const text = Buffer.from(twist({ method, path, body: body.toString("utf8"), answer, secret }));
  response.writeHead(answered.status, {
    "content-type": "application/json",
    "content-length": text.length,
  });
  response.end(text);
}
