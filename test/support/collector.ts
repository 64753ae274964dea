import { createServer, type IncomingHttpHeaders, type Server } from "node:http";
import { holdPort } from "./held-port.ts";

/** A span as it came, with attributes as a plain object. */
export interface Span {
  traceId: string;
  spanId: string;
  parentSpanId: string | undefined;
  name: string;
  kind: number;
  /** 2: error. */
  status: number;
  attributes: Record<string, unknown>;
  nanoseconds: number;
}

export interface Heard {
  method: string;
  url: string;
  headers: IncomingHttpHeaders;
  body: string;
}

/** A server that keeps what it was sent. @param answer gives status and body */
export async function givenListener(answer: (heard: Heard) => { status: number; body: string }) {
  const heard: Heard[] = [];
  const server: Server = createServer(async (req, res) => {
    let body = "";
    for await (const chunk of req.setEncoding("utf8")) body += chunk;
    const one = { method: req.method ?? "", url: req.url ?? "", headers: req.headers, body };
    heard.push(one);
    const { status, body: text } = answer(one);
    res.writeHead(status, { "Content-Type": "application/json" }).end(text);
  });
  // Held to the end of this process, so that nobody else listens there until the server is `back`.
  const { port } = await holdPort();
  const listen = () => new Promise<void>((done) => server.listen(port, "127.0.0.1", () => done()));
  await listen();
  return {
    url: `http://127.0.0.1:${port}`,
    heard,
    /** Nobody listens any more, until it comes `back`. */
    stop(): void {
      server.close();
      server.closeAllConnections();
    },
    back: listen,
  };
}

/** An OpenTelemetry collector, as far as traces as JSON go. @param first the status that it begins with */
export async function givenCollector(first = 200) {
  let status = first;
  const listener = await givenListener(() => ({ status, body: "{}" }));
  return {
    ...listener,
    /** Sets the answer from now on. */
    answer(next: number): void {
      status = next;
    },
    endpoint: `${listener.url}/v1/traces`,
    /** All spans so far, and the resource's attributes. */
    spans: (): Span[] => listener.heard.flatMap(({ body }) => spansIn(body)),
  };
}

type Attributes = { key: string; value: Record<string, unknown> }[];

function spansIn(body: string): Span[] {
  const { resourceSpans } = JSON.parse(body);
  const spans: Span[] = [];
  for (const { scopeSpans } of resourceSpans) {
    for (const { spans: some } of scopeSpans) {
      for (const span of some) {
        spans.push({
          traceId: span.traceId,
          spanId: span.spanId,
          parentSpanId: span.parentSpanId,
          name: span.name,
          kind: span.kind,
          status: span.status?.code ?? 0,
          attributes: plain(span.attributes),
          nanoseconds: Number(BigInt(span.endTimeUnixNano) - BigInt(span.startTimeUnixNano)),
        });
      }
    }
  }
  return spans;
}

const plain = (attributes: Attributes): Record<string, unknown> =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]));
