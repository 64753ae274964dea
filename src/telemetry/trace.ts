import { isTraceState, parseTraceParent } from "./trace-context.ts";

/** The part of a request's trace that a call to the upstream carries. */
export interface Carried {
  /** Header lines, flat: name, value. */
  readonly headers: readonly string[];
  /** Called with the HTTP status of the upstream's answer, if there is one. */
  answered?(status: number): void;
}

export interface OpenSpan {
  /** @param outcome from a closed set; undefined if it threw */
  end(outcome: string | undefined): void;
}

/** The attributes of an answered request; `undefined` is left out. It has no value of the client but ids. */
export interface AnsweredRequest {
  method: string | undefined;
  route: string;
  /** 499 if the client had disconnected. */
  status: number;
  outcome: string;
  requestId: string;
  keyId?: string | undefined;
  accountId?: string | undefined;
  taskId?: string | undefined;
}

export interface RequestSpans {
  /** @param script its name, in capitals */
  store(script: string): OpenSpan;
  /** @param route the upstream's route template, which is the same as ours */
  upstream(method: string, route: string): OpenSpan & Carried;
  end(answered: AnsweredRequest): void;
}

export interface RequestTrace extends Carried {
  readonly traceId: string;
  /** Undefined if the request is not recorded. */
  readonly spans: RequestSpans | undefined;
}

export interface Tracing {
  /** True if requests without a `traceparent` have a trace as well. */
  readonly on: boolean;
  /** @param traceParent undefined for none @param startedMs by `performance.now()` @returns undefined if it is in no trace */
  begin(
    traceParent: string | undefined,
    traceState: string | undefined,
    startedMs: number,
  ): RequestTrace | undefined;
  /** Sends the spans that wait and drops later ones. Never fails; takes at most as long as an export may. */
  stop(): Promise<void>;
}

/** Tracing without an endpoint: the headers are passed on as received. W3C Trace Context, 3.4. */
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

/** The header line of a well-formed `tracestate`. Use it only with a valid `traceparent`. */
export function stateLines(traceState: string | undefined): string[] {
  return traceState !== undefined && isTraceState(traceState) ? ["tracestate", traceState] : [];
}
