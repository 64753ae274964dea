/** Where a request stands in somebody's trace: the fields of `traceparent`. W3C Trace Context, level 2, section 3.2. */
export interface TraceParent {
  /** 32 lower-case hex digits, not all zero. */
  traceId: string;
  /** 16 lower-case hex digits, not all zero: the caller's span. */
  spanId: string;
  /** The caller records the trace. */
  sampled: boolean;
  /** The trace id has 7 random bytes at its end, as the caller says; passed on with it. */
  random: boolean;
}

const FIELDS = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const SAMPLED = 0x01;
const RANDOM = 0x02;

/**
 * Reads a `traceparent`. Of a version to come only what version 00 has is read, if it begins the same way.
 * @param value as it came; undefined: none, or more than one
 * @returns undefined where it must be treated as if there were none
 */
export function parseTraceParent(value: string | undefined): TraceParent | undefined {
  const fields = value === undefined ? null : FIELDS.exec(value);
  if (!fields) return undefined;
  const [, version, traceId = "", spanId = "", flagsHex = "", more] = fields;
  if (version === "ff" || (version === "00" && more !== undefined)) return undefined;
  if (isZero(traceId) || isZero(spanId)) return undefined;
  const flags = Number.parseInt(flagsHex, 16);
  return { traceId, spanId, sampled: (flags & SAMPLED) !== 0, random: (flags & RANDOM) !== 0 };
}

/** A `traceparent` of version 00: flags that this version does not know are not sent. */
export function traceParentText({ traceId, spanId, sampled, random }: TraceParent): string {
  const flags = (sampled ? SAMPLED : 0) | (random ? RANDOM : 0);
  return `00-${traceId}-${spanId}-0${flags}`;
}

const MEMBERS_MAX = 32;
/** All that a `tracestate` may consist of: of white space only spaces and tabs, so that `trim` takes no other away. */
const STATE = /^[\t\x20-\x7e]*$/;
const MEMBER =
  /^[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]$/;

/**
 * True for a `tracestate` that may be passed on: at most 32 members, each a key and a value, no key twice. Empty
 * members are allowed. One that is none of this is dropped as a whole. W3C Trace Context, section 3.3.
 */
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
