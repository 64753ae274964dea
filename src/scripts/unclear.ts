import { accountNames, idempotencyName, type KeyRef, requestName } from "../records/names.ts";
import type { Script } from "./script-definition.ts";

/** How the upstream left open whether it made a task. */
export type UnknownOutcome = "unclear" | "timed_out";

interface UnclearCall {
  key: KeyRef;
  requestId: string;
  idempotencyDigest: string | undefined;
  unknown: UnknownOutcome;
  /** Unknown outcomes that an account may have. */
  unknownMax: number;
}

/** `blockedUntilMs`: until when the account makes no further request, Unix ms; undefined if it may. `missing`: the hold has ended. */
export type Unclear =
  | { outcome: "noted"; count: number; blockedUntilMs: number | undefined }
  | { outcome: "missing" };

export const unclear: Script<UnclearCall, Unclear> = {
  name: "unclear",
  keys({ key: { names, partition, accountId }, requestId, idempotencyDigest }) {
    const { unknown } = accountNames(partition, accountId);
    const keys = [requestName(partition, requestId), names.account, unknown];
    if (idempotencyDigest) keys.push(idempotencyName(partition, idempotencyDigest));
    return keys;
  },
  args: ({ requestId, unknown, unknownMax }) => [requestId, unknown, unknownMax],
  read: ([outcome, , count, blockedUntil]) =>
    outcome === "missing"
      ? { outcome }
      : { outcome: "noted", count: Number(count), blockedUntilMs: Number(blockedUntil) || undefined },
};
