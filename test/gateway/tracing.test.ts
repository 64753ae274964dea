import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { startGenerator } from "../../src/sandbox/generator/server.ts";
import { givenCollector, givenListener, type Span } from "../support/collector.ts";
import { givenGateway, type TestGateway, until } from "../support/gateway.ts";
import { startGatewayProcess } from "../support/processes.ts";
import { BOAT, TEXT_TO_VIDEO } from "./spec-stage.ts";

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN = "00f067aa0ba902b7";
const PARENT = `00-${TRACE}-${SPAN}-01`;

/** An upstream that says yes to all generations, and keeps the headers that it was sent. */
const givenUpstream = async () => {
  let made = 0;
  return givenListener(({ method, url }) => {
    const taskId = method === "POST" ? `task_${process.pid}${Date.now()}_${made++}` : url.split("/").at(-1);
    const data = { task_id: taskId, status: "processing", created_at: new Date().toISOString() };
    return { status: 200, body: JSON.stringify({ code: 200, msg: "success", data }) };
  });
};

const lineOf = (gateway: TestGateway, requestId: string) =>
  gateway.logs.map((line) => JSON.parse(line)).find((line) => line.request_id === requestId && line.route);

describe("without an endpoint", () => {
  test("a good traceparent goes to the upstream as it came and into the log; a bad one goes nowhere", async () => {
    const upstream = await givenUpstream();
    const gateway = await givenGateway({ upstreamUrl: upstream.url });
    const { key } = await gateway.givenKey();
    const ask = (headers: Record<string, string>) =>
      gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT, headers });
    const good = await ask({ traceparent: PARENT, tracestate: "a=1" });
    const { headers } = upstream.heard.at(-1)!;
    expect(headers).toMatchObject({ traceparent: PARENT, tracestate: "a=1" });
    expect(lineOf(gateway, good.headers.get("x-request-id")!)?.trace_id).toBe(TRACE);
    for (const bad of [{ traceparent: `00-${TRACE}-${SPAN}-1`, tracestate: "a=1" }, { tracestate: "a=1" }]) {
      const reply = await ask(bad as Record<string, string>);
      expect(upstream.heard.at(-1)?.headers).not.toHaveProperty("traceparent");
      expect(upstream.heard.at(-1)?.headers).not.toHaveProperty("tracestate");
      expect(lineOf(gateway, reply.headers.get("x-request-id")!)).not.toHaveProperty("trace_id");
    }
    await gateway.stop();
    upstream.stop();
  });

  // prom-client loads the API package, which is small and does nothing, for itself.
  test("no module of OpenTelemetry is loaded by the gateway; with one it is", async () => {
    const generator = await startGenerator();
    const watch = `data:text/javascript,${encodeURIComponent(
      `import { registerHooks } from "node:module";
       registerHooks({ resolve(name, context, next) {
         if (name.startsWith("@opentelemetry") && !context.parentURL.includes("/prom-client/")) process._rawDebug("loaded " + name);
         return next(name, context);
       } });`,
    )}`;
    const loadedWith = async (endpoint: string): Promise<boolean> => {
      const gateway = await startGatewayProcess({
        redisUrl: inject("redisUrl"),
        upstreamUrl: generator.url,
        config: { tracing: { endpoint }, server: { drain_delay: "0s" } },
        env: { NODE_OPTIONS: `--import "${watch}"` },
      });
      await fetch(`${gateway.url}/api/v1/credits`, { headers: { traceparent: PARENT } });
      gateway.signal("SIGTERM");
      const { how, stderr } = await gateway.ended();
      await gateway.stop();
      expect(how).toBe("exit code 0");
      return stderr.includes("loaded @opentelemetry/");
    };
    expect(await loadedWith("")).toBe(false);
    expect(await loadedWith("http://127.0.0.1:9/v1/traces")).toBe(true);
    await generator.stop();
  });
});

describe("with an endpoint", () => {
  let spans: Span[];
  let upstream: Awaited<ReturnType<typeof givenUpstream>>;
  const ids: Record<string, string> = {};
  let traceOfRoot: string;
  let key: string;

  beforeAll(async () => {
    const collector = await givenCollector();
    upstream = await givenUpstream();
    const gateway = await givenGateway({
      upstreamUrl: upstream.url,
      config: { tracing: { endpoint: collector.endpoint } },
    });
    ({ key } = await gateway.givenKey({ credits: 10 }));
    const headers = { traceparent: PARENT, tracestate: "a=1" };
    const made = await gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT, headers });
    const refused = await gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT });
    const { task_id: taskId } = made.body.data;
    const poll = await gateway.request("GET", `/api/v1/tasks/${taskId}`, { key });
    const unsampled = await gateway.request("GET", `/api/v1/tasks/${taskId}`, {
      key,
      headers: { traceparent: `00-${"c".repeat(32)}-${SPAN}-00` },
    });
    expect([made, refused, poll, unsampled].map(({ status }) => status)).toEqual([200, 402, 200, 200]);
    Object.entries({ made, refused, poll, unsampled }).forEach(([name, reply]) => {
      ids[name] = reply.headers.get("x-request-id")!;
    });
    traceOfRoot = lineOf(gateway, ids.refused!)?.trace_id;
    // What waits is sent when the gateway drains.
    await gateway.stop();
    spans = collector.spans();
    collector.stop();
    upstream.stop();
  });

  const rootOf = (name: string): Span =>
    spans.find(({ attributes }) => attributes["tollgate.request_id"] === ids[name])!;
  const treeOf = (name: string): string[] => {
    const root = rootOf(name);
    const below = spans.filter(({ parentSpanId }) => parentSpanId === root.spanId);
    for (const span of below) expect(span.traceId).toBe(root.traceId);
    return [root.name, ...below.map((span) => `${span.name}: ${span.attributes["tollgate.outcome"]}`)];
  };

  test("a generation is one tree below its caller's span", () => {
    expect(treeOf("made")).toEqual([
      `POST ${TEXT_TO_VIDEO}`,
      "ADMIT: admitted",
      `POST ${TEXT_TO_VIDEO}: accepted`,
      "BIND: bound",
    ]);
    const root = rootOf("made");
    expect(root).toMatchObject({ traceId: TRACE, parentSpanId: SPAN, kind: 2, status: 0 });
    expect(root.attributes).toMatchObject({
      "http.request.method": "POST",
      "http.route": TEXT_TO_VIDEO,
      "http.response.status_code": 200,
      "tollgate.outcome": "ok",
    });
    const call = spans.find(({ parentSpanId, kind, name }) => {
      return parentSpanId === root.spanId && kind === 3 && name.startsWith("POST");
    })!;
    expect(call.attributes["http.response.status_code"]).toBe(200);
    // The upstream goes on below the call.
    const { headers } = upstream.heard.find(({ method }) => method === "POST")!;
    expect(headers).toMatchObject({ traceparent: `00-${TRACE}-${call.spanId}-01`, tracestate: "a=1" });
    expect(call.nanoseconds).toBeLessThanOrEqual(root.nanoseconds);
  });

  test("a refused one ends at ADMIT, in a trace of its own that the log names", () => {
    expect(treeOf("refused")).toEqual([`POST ${TEXT_TO_VIDEO}`, "ADMIT: insufficient_credits"]);
    const root = rootOf("refused");
    expect(root.parentSpanId).toBeUndefined();
    expect(root.traceId).toBe(traceOfRoot);
    expect(root.attributes["http.response.status_code"]).toBe(402);
  });

  test("a poll asks the store, the upstream and the store", () => {
    expect(treeOf("poll")).toEqual([
      "GET /api/v1/tasks/{taskId}",
      "INSPECT: task",
      "GET /api/v1/tasks/{taskId}: task",
      "OBSERVE: observed",
    ]);
  });

  test("what its caller does not record is not recorded", () => {
    expect(spans.length).toBeGreaterThan(8);
    expect(spans.filter(({ traceId }) => traceId === "c".repeat(32))).toEqual([]);
  });

  test("no key is in any span", () => {
    expect(JSON.stringify(spans)).not.toContain(key.slice(3));
    expect(JSON.stringify(spans)).not.toContain("upstream-secret");
  });
});

describe("a collector that is no help", () => {
  let gateway: TestGateway;
  let collector: Awaited<ReturnType<typeof givenCollector>>;
  beforeAll(async () => {
    collector = await givenCollector(400);
    gateway = await givenGateway({
      config: { tracing: { endpoint: collector.endpoint, queue: 2, exportTimeoutMs: 500 } },
    });
  });
  afterAll(() => collector.stop());

  test("hurts no request; what is lost is counted and said once", async () => {
    const { key } = await gateway.givenKey();
    const all = Array.from({ length: 30 }, () => gateway.request("GET", "/api/v1/credits", { key }));
    for (const { status } of await Promise.all(all)) expect(status).toBe(200);
    const lost = async (reason: string): Promise<number> => {
      const [sample = " 0"] = await gateway.metric(`tollgate_spans_dropped_total{reason="${reason}"}`);
      return Number(sample.split(" ").at(-1));
    };
    await until(async () => (await lost("queue_full")) > 0, "spans dropped before the queue");
    await until(async () => (await lost("export_failed")) > 0, "spans dropped after it");
    await gateway.stop();
    const told = gateway.logs.filter((line) => line.includes("spans cannot be sent"));
    expect(told).toHaveLength(1);
  });
});
