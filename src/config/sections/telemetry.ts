import { type Static, Type } from "typebox";
import { traceEndpointRule } from "../setting-rules.ts";
import { duration, integer, section, text, toProgram } from "../setting-types.ts";

export const LOG_LEVELS = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;

export const logSchema = section("The log on standard output.", {
  level: Type.Enum([...LOG_LEVELS], {
    default: "info",
    description: "Least severe level that is written.",
  }),
  polls: Type.Enum(["debug", "info"], {
    default: "debug",
    description:
      "Level of the lines of polls that are answered below status 500. With `debug`, one line a minute at `info` sums them up.",
  }),
  slow_request: duration(
    "0s",
    "0s",
    "1h",
    "A request that spends as long in the gateway and its store, without the upstream's time and the client's, gets a " +
      "warning that says where; 0s turns it off.",
  ),
});

export const tracingSchema = section("Traces for OpenTelemetry, which is not loaded without an endpoint.", {
  endpoint: text(
    "",
    traceEndpointRule,
    "Where spans are sent, OTLP over HTTP as JSON, with its whole path; empty turns tracing off.",
  ),
  sample_ratio: Type.Number({
    default: 1,
    minimum: 0,
    maximum: 1,
    description:
      "Share of the requests recorded that come without a traceparent; with one its caller decides.",
    "x-expects": "a number from 0 to 1",
  }),
  queue: integer(2048, 1, 1_000_000, "Spans that may wait to be sent; more are dropped and counted."),
  export_timeout: duration("10s", "10ms", "1m", "How long sending one batch of spans may take."),
});

export const toTracingConfig = (tracing: Static<typeof tracingSchema>) => ({
  ...toProgram(tracingSchema, tracing),
  endpoint: tracing.endpoint || undefined,
});
