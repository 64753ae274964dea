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

/** The fields of a `traceparent`. W3C Trace Context, level 2, section 3.2. */
export interface TraceParent {
  /** 32 lower-case hex digits, not all zero. */
  traceId: string;
  /** 16 lower-case hex digits, not all zero: the caller's span. */
  spanId: string;
  sampled: boolean;
  /** The caller says that the last 7 bytes of the trace id are random; passed on. */
  random: boolean;
}

const FIELDS = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const SAMPLED = 0x01;
const RANDOM = 0x02;

/** Of a later version only the fields of version 00 are read. @param value undefined for none, or several @returns undefined: ignore it */
export function parseTraceParent(value: string | undefined): TraceParent | undefined {
  const fields = value === undefined ? null : FIELDS.exec(value);
  if (!fields) return undefined;
  const [, version, traceId = "", spanId = "", flagsHex = "", more] = fields;
  if (version === "ff" || (version === "00" && more !== undefined)) return undefined;
  if (isZero(traceId) || isZero(spanId)) return undefined;
  const flags = Number.parseInt(flagsHex, 16);
  return { traceId, spanId, sampled: (flags & SAMPLED) !== 0, random: (flags & RANDOM) !== 0 };
}

/** A `traceparent` of version 00, without flags that this version does not define. */
export function traceParentText({ traceId, spanId, sampled, random }: TraceParent): string {
  const flags = (sampled ? SAMPLED : 0) | (random ? RANDOM : 0);
  return `00-${traceId}-${spanId}-0${flags}`;
}

const MEMBERS_MAX = 32;
/** The characters of a `tracestate`. Its only white space is spaces and tabs, so that `trim` removes no other. */
const STATE = /^[\t\x20-\x7e]*$/;
const MEMBER =
  /^[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]$/;

/** At most 32 members, no key twice, empty ones allowed; else dropped as a whole. W3C Trace Context, section 3.3. */
export function isTraceState(value: string): boolean {
  if (!STATE.test(value)) return false;
  const keys = new Set<string>();
  let members = 0;
  for (const part of value.split(",")) {
    const member = part.trim();
    if (member === "") continue;
    if (!MEMBER.test(member)) return false;
    keys.add(member.slice(0, member.indexOf("=")));
    members++;
  }
  return members > 0 && members <= MEMBERS_MAX && keys.size === members;
}

const isZero = (hex: string): boolean => /^0+$/.test(hex);
