import {
  type Attributes,
  type Context,
  createTraceState,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace,
} from "@opentelemetry/api";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import {
  defaultResource,
  detectResources,
  envDetector,
  resourceFromAttributes,
} from "@opentelemetry/resources";
import {
  BatchSpanProcessor,
  ParentBasedSampler,
  type ReadableSpan,
  type SpanExporter,
  type SpanProcessor,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from "@opentelemetry/sdk-trace";
import type { Logger } from "./log.ts";
import {
  type AnsweredRequest,
  parseTraceParent,
  type RequestSpans,
  stateLines,
  type TraceParent,
  type Tracing,
  traceParentText,
} from "./trace.ts";

const BATCH_MAX = 512;
const BATCH_EVERY_MS = 2000;
/** Methods that may be a span's attribute; others are `_OTHER`, as the conventions require. */
const METHODS = new Set("GET HEAD POST PUT DELETE CONNECT OPTIONS TRACE PATCH QUERY".split(" "));
/** Outcomes of an upstream exchange that are not errors. */
const SUCCESSES = new Set(["accepted", "task", "answered", "client_gone"]);
/** Routes that are not templates of ours. */
const NO_ROUTE = new Set(["none", "unknown"]);

interface TracingOptions {
  endpoint: string;
  sampleRatio: number;
  queue: number;
  exportTimeoutMs: number;
  upstreamUrl(): string;
  log: Logger;
  dropped: BoundedOptions["dropped"];
}

/** OTLP over HTTP; only this file loads OpenTelemetry, and only if there is an endpoint. Names: its semantic conventions. Decision 0012. */
export function createTracing(options: TracingOptions): Tracing {
  const { upstreamUrl } = options;
  const { provider, dropWaiting } = createProvider(options);
  const tracer = provider.getTracer("tollgate");
  return {
    on: true,
    begin(traceParent, traceState, startedMs) {
      const parent = parseTraceParent(traceParent);
      const state = parent ? stateLines(traceState) : [];
      const context = parent ? contextOf(parent, state[1]) : ROOT_CONTEXT;
      const span = tracer.startSpan("HTTP", { kind: SpanKind.SERVER, startTime: startedMs }, context);
      // Our own ids are random; of others we only know what the caller says.
      const random = parent?.random ?? true;
      const headersOf = (under: Span) => ["traceparent", parentText(under, random), ...state];
      return {
        traceId: span.spanContext().traceId,
        headers: headersOf(span),
        spans: span.isRecording() ? spansOf(span, tracer, headersOf, upstreamUrl) : undefined,
      };
    },
    async stop() {
      await provider.shutdown().catch(() => undefined);
      dropWaiting();
    },
  };
}

function createProvider({ endpoint, queue, exportTimeoutMs, sampleRatio, dropped, log }: TracingOptions) {
  const { processor, dropWaiting } = boundedExport({
    exporter: new OTLPTraceExporter({ url: endpoint, timeoutMillis: exportTimeoutMs }),
    queue,
    batch: (exporter) =>
      new BatchSpanProcessor({
        exporter,
        maxQueueSize: queue,
        maxExportBatchSize: Math.min(BATCH_MAX, queue),
        scheduledDelayMillis: BATCH_EVERY_MS,
        // The exporter has its own timeout; this one only catches an exporter that hangs.
        exportTimeoutMillis: 2 * exportTimeoutMs,
      }),
    dropped,
    log,
  });
  const provider = new TracerProvider({
    resource: defaultResource()
      .merge(resourceFromAttributes({ "service.name": "tollgate" }))
      .merge(detectResources({ detectors: [envDetector] })),
    sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(sampleRatio) }),
    spanProcessors: [processor],
  });
  return { provider, dropWaiting };
}

function contextOf({ traceId, spanId, sampled }: TraceParent, state: string | undefined): Context {
  return trace.setSpanContext(ROOT_CONTEXT, {
    traceId,
    spanId,
    traceFlags: sampled ? 1 : 0,
    isRemote: true,
    ...(state === undefined ? {} : { traceState: createTraceState(state) }),
  });
}

function spansOf(
  root: Span,
  tracer: Tracer,
  headersOf: (span: Span) => string[],
  upstreamUrl: () => string,
): RequestSpans {
  const under = trace.setSpan(ROOT_CONTEXT, root);
  const startSpan = (name: string, attributes: Attributes) =>
    tracer.startSpan(name, { kind: SpanKind.CLIENT, attributes }, under);
  return {
    store(script) {
      const span = startSpan(script, {
        "db.system.name": "redis",
        "db.stored_procedure.name": script.toLowerCase(),
      });
      return { end: (outcome) => endStep(span, outcome, outcome === undefined) };
    },
    upstream(method, route) {
      const span = startSpan(`${method} ${route}`, {
        "http.request.method": method,
        "url.template": route,
        ...serverAt(upstreamUrl()),
      });
      return {
        headers: headersOf(span),
        answered: (status) => void span.setAttribute("http.response.status_code", status),
        end: (outcome) => endStep(span, outcome, outcome === undefined || !SUCCESSES.has(outcome)),
      };
    },
    end: (answered) => endRequest(root, answered),
  };
}

function serverAt(url: string): { "server.address": string; "server.port": number } {
  const { hostname, port, protocol } = new URL(url);
  return { "server.address": hostname, "server.port": Number(port) || (protocol === "https:" ? 443 : 80) };
}

/** The `traceparent` for what follows a span: its parent is the span. */
function parentText(span: Span, random: boolean): string {
  const { traceId, spanId, traceFlags } = span.spanContext();
  return traceParentText({ traceId, spanId, sampled: (traceFlags & 1) === 1, random });
}

function endStep(span: Span, outcome: string | undefined, failed: boolean): void {
  if (outcome !== undefined) span.setAttribute("tollgate.outcome", outcome);
  if (failed) {
    span.setAttribute("error.type", outcome ?? "failed");
    span.setStatus({ code: SpanStatusCode.ERROR });
  }
  span.end();
}

function endRequest(span: Span, answered: AnsweredRequest): void {
  const { method = "", route, status, outcome } = answered;
  const known = METHODS.has(method);
  const name = known ? method : "HTTP";
  span.updateName(NO_ROUTE.has(route) ? name : `${name} ${route}`);
  span.setAttributes({
    "http.request.method": known ? method : "_OTHER",
    "url.scheme": "http",
    "tollgate.outcome": outcome,
    "tollgate.request_id": answered.requestId,
    // The SDK leaves out undefined values.
    "http.route": NO_ROUTE.has(route) ? undefined : route,
    "http.response.status_code": outcome === "client_gone" ? undefined : status,
    "tollgate.key_id": answered.keyId,
    "tollgate.account_id": answered.accountId,
    "tollgate.task_id": answered.taskId,
  });
  if (status >= 500) {
    span.setAttribute("error.type", outcome);
    span.setStatus({ code: SpanStatusCode.ERROR });
  }
  span.end();
}

type DropReason = "queue_full" | "export_failed";

interface BoundedOptions {
  /** Sends spans; calls back once for each batch, whether it was sent or not. */
  exporter: SpanExporter;
  queue: number;
  batch(exporter: SpanExporter): SpanProcessor;
  dropped(reason: DropReason, spans: number): void;
  log: Logger;
}

/** Counts lost spans: those while the queue is full, and unsent batches. Logs the first failure and the next success. Decision 0012. */
function boundedExport({ exporter, queue, batch, dropped, log }: BoundedOptions) {
  /** Spans that are neither sent nor lost. */
  let waiting = 0;
  let failing = false;

  const counted: SpanExporter = {
    export(spans, done) {
      exporter.export(spans, (result) => {
        waiting -= spans.length;
        const sent = result.code === 0;
        if (!sent) dropped("export_failed", spans.length);
        if (!sent && !failing) {
          log.warn(
            { detail: result.error?.message },
            "spans cannot be sent: they are dropped until it works",
          );
        }
        if (sent && failing) log.info("spans are sent again");
        failing = !sent;
        done(result);
      });
    },
    forceFlush: async () => exporter.forceFlush?.(),
    shutdown: () => exporter.shutdown(),
  };
  const inner = batch(counted);

  const processor: SpanProcessor = {
    onStart: (span, parent) => inner.onStart(span, parent),
    onEnd(span: ReadableSpan): void {
      if (waiting >= queue) {
        dropped("queue_full", 1);
        return;
      }
      waiting++;
      inner.onEnd(span);
    },
    forceFlush: () => inner.forceFlush(),
    shutdown: () => inner.shutdown(),
  };
  return {
    processor,
    /** Counts the spans that still wait as lost: no more are sent. */
    dropWaiting(): void {
      if (waiting > 0) dropped("export_failed", waiting);
      waiting = 0;
    },
  };
}
