import type { ReadableSpan, SpanExporter, SpanProcessor } from "@opentelemetry/sdk-trace";
import type { Logger } from "./log.ts";

type DropReason = "queue_full" | "export_failed";

export interface BoundedOptions {
  /** Sends spans; calls back once for each batch, whether it was sent or not. */
  exporter: SpanExporter;
  /** Spans that may wait or be in an export. */
  queue: number;
  /** Makes the processor that collects spans into batches for this exporter. */
  batch(exporter: SpanExporter): SpanProcessor;
  dropped(reason: DropReason, spans: number): void;
  log: Logger;
}

/**
 * A batch processor that counts the spans that it loses: those that come while the queue is full, and those of batches that
 * could not be sent. The log gets one line when exports begin to fail, and one when they succeed again. Decision 0012.
 */
export function boundedExport({ exporter, queue, batch, dropped, log }: BoundedOptions) {
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
