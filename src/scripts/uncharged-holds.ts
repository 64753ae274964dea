import type { Tiers } from "../domain/limits.ts";
import { type Actor, actorText } from "../records/actor.ts";
import { accountNames, idempotencyName, type KeyRef, requestName } from "../records/names.ts";
import { type KeyState, keyStateOf, NO_TIERS, type UnknownOutcome } from "./holds.ts";
import type { Script } from "./script-definition.ts";

// A generation's hold without a task: given back, or open as to its outcome.

/** How long the tombstone of an `unsent` VOID refuses the ADMIT of its request; far beyond any `notAfterMs`. */
const TOMBSTONE_MS = 3_600_000;

export interface VoidCall {
  key: KeyRef;
  requestId: string;
  idempotencyDigest?: string | undefined;
  /** `refused`: the upstream refused. `unsent`: nothing went upstream, so its window entry goes, too. `due`, `released`: settlement/holds.ts. */
  reason: "refused" | "due" | "unsent" | "released";
  actor?: Actor;
  /** Without tiers the numbers of the reply are zeros, which is enough for callers that do not read them. */
  tiers?: Tiers;
}

export interface Voided extends KeyState {
  outcome: "void" | "bound" | "not_due" | "missing";
  /** An earlier call had voided it. */
  wasVoid: boolean;
}

export const voidHold: Script<VoidCall, Voided> = {
  name: "void",
  isBatched: true,
  keys({ key: { names, partition }, requestId, idempotencyDigest }) {
    const keys = [requestName(partition, requestId), names.account, names.key, names.window, names.slots];
    keys.push(names.due, names.done);
    if (idempotencyDigest) keys.push(idempotencyName(partition, idempotencyDigest));
    return keys;
  },
  tiers: ({ tiers = NO_TIERS }) => tiers,
  args: ({ requestId, reason, actor }) => [requestId, reason, TOMBSTONE_MS, actor ? actorText(actor) : ""],
  read: (reply) => ({
    outcome: reply[0] as Voided["outcome"],
    wasVoid: reply[8] === "before",
    ...keyStateOf(reply),
  }),
};

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
