import { randomUUID } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { afterAll, beforeAll, describe, expect, inject, test, vi } from "vitest";
import { givenCollector, givenListener, type Span } from "../support/collector.ts";
import { expectStatus, givenGateway, type TestGateway, until } from "../support/gateway.ts";
import { startGenerator } from "../support/generator.ts";
import { tinyImage } from "../support/images.ts";
import { startGatewayProcess, startProgram } from "../support/processes.ts";
import { BOAT, TEXT_TO_VIDEO } from "./spec-stage.ts";

type Collector = Awaited<ReturnType<typeof givenCollector>>;

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN = "00f067aa0ba902b7";
const PARENT = `00-${TRACE}-${SPAN}-01`;
const UPLOAD = "/api/v1/upload";

/** An upstream that says yes to all generations and uploads, and keeps the headers that it was sent. */
const givenUpstream = () =>
  givenListener(({ method, url }) => {
    const taskId = method === "POST" ? `task_${randomUUID()}` : url.split("/").at(-1);
    const now = new Date().toISOString();
    const data = url.endsWith(UPLOAD)
      ? { url: "https://files.example.com/a.png", expires_at: now }
      : { task_id: taskId, status: "processing", created_at: now };
    return { status: 200, body: JSON.stringify({ code: 200, msg: "success", data }) };
  });

/** Uploads a picture. */
async function upload(gateway: TestGateway, key: string, trace: Record<string, string>): Promise<Response> {
  const body = new FormData();
  body.set("file", new Blob([new Uint8Array(tinyImage("image/png"))], { type: "image/png" }), "a.png");
  const headers = { authorization: `Bearer ${key}`, ...trace };
  return fetch(gateway.url + UPLOAD, { method: "POST", headers, body });
}

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

  test("an upload takes it along just so", async () => {
    const upstream = await givenUpstream();
    const gateway = await givenGateway({ upstreamUrl: upstream.url });
    const { key } = await gateway.givenKey();
    const good = await upload(gateway, key, { traceparent: PARENT, tracestate: "a=1" });
    expectStatus(good, 200);
    expect(upstream.heard.at(-1)).toMatchObject({
      url: UPLOAD,
      headers: { traceparent: PARENT, tracestate: "a=1", "x-request-id": good.headers.get("x-request-id") },
    });
    expect(lineOf(gateway, good.headers.get("x-request-id")!)?.trace_id).toBe(TRACE);
    expectStatus(await upload(gateway, key, { traceparent: "00-1-2-01", tracestate: "a=1" }), 200);
    expect(upstream.heard).toHaveLength(2);
    expect(upstream.heard.at(-1)?.headers).not.toHaveProperty("traceparent");
    expect(upstream.heard.at(-1)?.headers).not.toHaveProperty("tracestate");
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
        fromSources: true,
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

  test("a gateway installed without OpenTelemetry starts without an endpoint; with one it says what to install", async () => {
    const generator = await startGenerator();
    const missing = `data:text/javascript,${encodeURIComponent(
      `import { registerHooks } from "node:module";
       registerHooks({ resolve(name, context, next) {
         if (!name.startsWith("@opentelemetry") || context.parentURL.includes("/prom-client/")) return next(name, context);
         throw Object.assign(new Error("Cannot find package " + name), { code: "ERR_MODULE_NOT_FOUND" });
       } });`,
    )}`;
    const NODE_OPTIONS = `--import "${missing}"`;
    const gateway = await startGatewayProcess({
      redisUrl: inject("redisUrl"),
      upstreamUrl: generator.url,
      env: { NODE_OPTIONS },
      fromSources: true,
    });
    expect((await fetch(`${gateway.url}/api/v1/credits`)).status).toBe(401);
    await gateway.stop();
    const refused = await startProgram(
      {
        HOST: "127.0.0.1",
        PORT: "0",
        ADMIN_PORT: "0",
        REDIS_URL: inject("redisUrl"),
        UPSTREAM_URL: generator.url,
        UPSTREAM_API_KEY: "upstream-secret",
        NODE_OPTIONS,
      },
      { tracing: { endpoint: "http://127.0.0.1:9/v1/traces" } },
      undefined,
      undefined,
      undefined,
      true,
    );
    const { how, stderr } = await refused.ended();
    await refused.stop();
    expect(how).toBe("exit code 1");
    expect(stderr).toContain("npm run add-tracing");
    await generator.stop();
  });
});

describe("with an endpoint", () => {
  let spans: Span[];
  let upstream: Awaited<ReturnType<typeof givenUpstream>>;
  const ids: Record<string, string> = {};
  let traceOfRoot: string;
  let key: string;

  /** Headers of what the collector was sent. */
  let sentWith: IncomingHttpHeaders[];

  beforeAll(async () => {
    vi.stubEnv("OTEL_EXPORTER_OTLP_HEADERS", "x-collector-key=hunter2");
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
    const uploaded = await upload(gateway, key, headers);
    // A key where a task id belongs: it looks like one.
    const misplaced = await gateway.request("GET", `/api/v1/tasks/${key}`, { key });
    const all = { made, refused, poll, unsampled, uploaded, misplaced };
    expect(Object.values(all).map(({ status }) => status)).toEqual([200, 402, 200, 200, 200, 404]);
    Object.entries(all).forEach(([name, reply]) => {
      ids[name] = reply.headers.get("x-request-id")!;
    });
    traceOfRoot = lineOf(gateway, ids.refused!)?.trace_id;
    // Spans that wait are sent when the gateway drains.
    await gateway.stop();
    spans = collector.spans();
    sentWith = collector.heard.map(({ headers }) => headers);
    collector.stop();
    upstream.stop();
    vi.unstubAllEnvs();
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

  test("an upload asks the store, then streams below its own span", () => {
    expect(treeOf("uploaded")).toEqual([`POST ${UPLOAD}`, "INSPECT: known", `POST ${UPLOAD}: answered`]);
    const root = rootOf("uploaded");
    expect(root).toMatchObject({ traceId: TRACE, parentSpanId: SPAN, kind: 2, status: 0 });
    const call = spans.find(({ parentSpanId, kind, name }) => {
      return parentSpanId === root.spanId && kind === 3 && name.startsWith("POST");
    })!;
    expect(call).toMatchObject({ status: 0, attributes: { "http.response.status_code": 200 } });
    const { headers } = upstream.heard.find(({ url }) => url === UPLOAD)!;
    expect(headers).toMatchObject({ traceparent: `00-${TRACE}-${call.spanId}-01`, tracestate: "a=1" });
  });

  test("the collector's own credentials come from the environment", () => {
    expect(sentWith.map((headers) => headers["x-collector-key"])).toContain("hunter2");
  });

  test("what its caller does not record is not recorded", () => {
    expect(spans.length).toBeGreaterThan(8);
    expect(spans.filter(({ traceId }) => traceId === "c".repeat(32))).toEqual([]);
  });

  test("no key is in any span", () => {
    expect(treeOf("misplaced")).toEqual(["GET /api/v1/tasks/{taskId}", "INSPECT: not_found"]);
    expect(JSON.stringify(spans)).not.toContain(key.slice(3));
    expect(JSON.stringify(spans)).not.toContain("upstream-secret");
  });
});

test("the sample ratio is for traces that begin here; what a caller records is recorded", async () => {
  const collector = await givenCollector();
  const gateway = await givenGateway({
    config: { tracing: { endpoint: collector.endpoint, sampleRatio: 0 } },
  });
  const { key } = await gateway.givenKey();
  for (const headers of [{}, { traceparent: PARENT }]) {
    expectStatus(await gateway.request("GET", "/api/v1/credits", { key, headers }), 200);
  }
  await gateway.stop();
  const traces = new Set(collector.spans().map(({ traceId }) => traceId));
  expect(traces).toEqual(new Set([TRACE]));
  collector.stop();
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
    const warnings = gateway.logs.filter((line) => line.includes("spans cannot be sent"));
    expect(warnings).toHaveLength(1);
  });
});

// Guarantee: nobody has to restart a gateway because its collector was away.
test.each<[string, (collector: Collector) => void, (collector: Collector) => unknown]>([
  ["refuses everything", (collector) => collector.answer(400), (collector) => collector.answer(200)],
  ["is not there", (collector) => collector.stop(), (collector) => collector.back()],
])("a collector that %s for a while gets spans again, and the log says so once", async (_, lose, regain) => {
  const collector = await givenCollector();
  const tracing = { endpoint: collector.endpoint, queue: 4, exportTimeoutMs: 10_000 };
  const gateway = await givenGateway({ config: { tracing } });
  const { key } = await gateway.givenKey();
  /** Requests, each with a span or two, until something has come of them. */
  const askUntil = (condition: () => boolean, what: string) =>
    until(async () => {
      await gateway.request("GET", "/api/v1/credits", { key });
      return condition();
    }, what);
  const logged = (msg: string) => gateway.logs.filter((line) => line.includes(msg)).length;
  const spans = () => collector.spans().length;

  await askUntil(() => spans() > 0, "spans");
  lose(collector);
  await askUntil(() => logged("spans cannot be sent") > 0, "the loss to be noticed");
  await regain(collector);
  await askUntil(() => logged("spans are sent again") > 0, "the recovery to be noticed");
  // The queue has room again: what was lost takes none of it.
  const id = (await gateway.request("GET", "/api/v1/credits", { key })).headers.get("x-request-id");
  await gateway.stop();
  collector.stop();
  const sent = collector.spans().some(({ attributes }) => attributes["tollgate.request_id"] === id);
  expect({ sent, lost: logged("spans cannot be sent"), found: logged("spans are sent again") }).toEqual({
    sent: true,
    lost: 1,
    found: 1,
  });
});
