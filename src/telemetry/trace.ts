import { isTraceState, parseTraceParent } from "./trace-context.ts";

/** What a call to the upstream takes along of the request's trace. */
export interface Carried {
  /** Header lines, flat: name, value. */
  readonly headers: readonly string[];
  /** Called with the HTTP status of the upstream's answer, if there is one. */
  answered?(status: number): void;
}

/** A step of a recorded request, under way. */
export interface OpenSpan {
  /** @param outcome from a closed set; undefined: it threw */
  end(outcome: string | undefined): void;
}

/** What is known of a request once it is answered; `undefined` is left out. No value of the client but ids. */
export interface AnsweredRequest {
  method: string | undefined;
  route: string;
  /** 499 when the client had gone. */
  status: number;
  outcome: string;
  requestId: string;
  keyId?: string;
  accountId?: string;
  taskId?: string;
}

/** The spans of a request that is recorded. */
export interface RequestSpans {
  /** @param script its name, in capitals */
  store(script: string): OpenSpan;
  /** @param route template on the upstream, the same as ours */
  upstream(method: string, route: string): OpenSpan & Carried;
  end(answered: AnsweredRequest): void;
}

/** A request's place in a trace. */
export interface RequestTrace extends Carried {
  readonly traceId: string;
  /** Undefined where nothing is recorded. */
  readonly spans: RequestSpans | undefined;
}

/** How traces are dealt with; built once in src/main.ts. */
export interface Tracing {
  /** True when requests without a `traceparent` have a trace, too. */
  readonly on: boolean;
  /**
   * @param traceParent as it came; undefined: none
   * @param startedMs `performance.now()` when the request began
   * @returns undefined when the request is in no trace
   */
  begin(
    traceParent: string | undefined,
    traceState: string | undefined,
    startedMs: number,
  ): RequestTrace | undefined;
  /** Sends what waits; later spans are dropped. Never fails, but may take as long as an export may. */
  stop(): Promise<void>;
}

/** Tracing without an endpoint: who takes no part passes on what came, as it came. W3C Trace Context, 3.4. */
export const passingOn: Tracing = {
  on: false,
  begin(traceParent, traceState) {
    const parent = parseTraceParent(traceParent);
    if (parent === undefined) return undefined;
    return {
      traceId: parent.traceId,
      headers: ["traceparent", traceParent!, ...stateLines(traceState)],
      spans: undefined,
    };
  },
  stop: async () => undefined,
};

/** The header line of a `tracestate` that is well-formed. It means nothing without a good `traceparent`. */
export function stateLines(traceState: string | undefined): string[] {
  return traceState !== undefined && isTraceState(traceState) ? ["tracestate", traceState] : [];
}
