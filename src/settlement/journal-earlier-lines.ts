import { keyRef } from "../store/names.ts";
import type { VoidCall } from "../store/scripts/void.ts";
import type { Settlement } from "./pending-settlement.ts";

/**
 * A line of format 1 or 2, as earlier releases wrote it: KEYS and ARGV in the order of their scripts. Lines of format 1 have
 * no `format`, their times are by the gateway's clock, and some have no store.
 */
export interface EarlierLine {
  format?: number;
  requestId: string;
  store?: string;
  atMs: number;
  untilMs?: number;
  verb: string;
  keys: readonly string[];
  args: readonly (string | number)[];
}

/** Undefined if the line makes no sense. */
export function settlementOfEarlier(line: EarlierLine): Settlement | undefined {
  const { store, atMs, untilMs } = line;
  const common = { storeId: store, atMs, ...(untilMs !== undefined && { untilMs }) };
  const place = /^tg:\{p(\d+)\}:request:/.exec(line.keys?.[0] ?? "");
  if (!place) return undefined;
  const partition = Number(place[1]);
  if (line.verb === "bind") return { ...common, script: "bind", call: bindCall(line, partition) };
  if (line.verb === "void") return { ...common, script: "void", call: voidCall(line, partition) };
  return undefined;
}

function bindCall({ requestId, keys, args }: EarlierLine, partition: number) {
  // The last three are missing in some lines of format 1.
  const [, , , accountId, keyId, price, endpoint, taskId, pollMs, data, fingerprint, , digest, ...fixed] =
    args;
  const [maxAgeMs, upstream, retentionMs] = fixed;
  const [, , , , , , , , idempotencyName] = keys;
  const idempotency = { digest: String(digest), fingerprint: String(fingerprint) };
  return {
    requestId,
    key: keyRef(String(keyId), String(accountId), partition),
    price: Number(price),
    endpoint: String(endpoint),
    ...(idempotencyName !== undefined && { idempotency }),
    retentionMs: optionalNumber(retentionMs),
    task: {
      taskId: String(taskId),
      data: String(data),
      pollMs: Number(pollMs),
      maxAgeMs: optionalNumber(maxAgeMs),
      upstream: upstream === undefined ? undefined : String(upstream),
    },
  };
}

const optionalNumber = (value: string | number | undefined): number | undefined =>
  value === undefined ? undefined : Number(value);

function voidCall({ requestId, keys, args }: EarlierLine, partition: number): VoidCall {
  const [, account = "", key = "", , , , , idempotency = ""] = keys;
  const lastPart = (name: string, kind: string): string => name.slice(name.indexOf(kind) + kind.length);
  return {
    requestId,
    key: keyRef(lastPart(key, "}:key:"), lastPart(account, "}:account:"), partition),
    idempotencyDigest: idempotency === "" ? undefined : lastPart(idempotency, "}:idempotency:"),
    reason: args[3] as VoidCall["reason"],
  };
}
