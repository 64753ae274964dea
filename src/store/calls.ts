import { type LimitState, SHADOW_LIMITS, type ShadowLimit, type Tiers } from "../core/limits.ts";
import type { Observation } from "../core/tasks.ts";
import { idempotencyName, type KeyRef, keyRef, requestName, taskName } from "./names.ts";
import type { Admission, Generation, NewTask, ObservedTask, UnknownOutcome } from "./operations.ts";
import type { Reply } from "./scripts.ts";

// What the scripts are given by more than one caller, and how their replies are read.

/** Three 404s over a minute: the task is gone. */
const GONE_COUNT = 3;
const GONE_MS = 60_000;

const IDEMPOTENCY_MS = 24 * 3_600_000;

/** KEYS of ADMIT, in the order of its header. */
export function admitKeys({ key, requestId, idempotency }: Generation): string[] {
  const { key: record, account, window, slots, holds } = key.names;
  const request = requestName(key.partition, requestId);
  if (!idempotency) return [record, account, window, slots, request, holds];
  const name = idempotencyName(key.partition, idempotency.digest);
  return [record, account, window, slots, request, holds, name];
}

/** ARGV of ADMIT, in the order of its header. @param now Unix ms, empty for the store's clock */
export function admitArgs(
  now: string,
  tiers: Tiers,
  { key, requestId, price, endpoint, holdMs, retentionMs, idempotency }: Generation,
  notAfterMs: number,
): (string | number)[] {
  const request = [requestId, key.keyId, price, endpoint, notAfterMs, holdMs];
  const { fingerprint = "", digest = "" } = idempotency ?? {};
  return [now, packTiers(tiers), ...request, fingerprint, IDEMPOTENCY_MS, digest, Math.round(retentionMs)];
}

/** KEYS of BIND, in the order of its header. @param clustered whether tasks are kept in partitions */
export function bindKeys(
  { key, requestId, idempotency }: Generation,
  taskId: string,
  clustered: boolean,
): string[] {
  const { names, partition } = key;
  const { account, slots, polls, ledger, done, holds } = names;
  const request = requestName(partition, requestId);
  const task = taskName(taskId, partition, clustered);
  if (!idempotency) return [request, account, slots, polls, ledger, task, done, holds];
  const name = idempotencyName(partition, idempotency.digest);
  return [request, account, slots, polls, ledger, task, done, holds, name];
}

/** ARGV of BIND, in the order of its header. @param now Unix ms, empty for the store's clock */
export function bindArgs(
  now: string,
  tiers: Tiers,
  { key, requestId, price, endpoint, retentionMs, idempotency }: Generation,
  { taskId, data, pollMs, maxAgeMs, upstream }: NewTask,
): (string | number)[] {
  const request = [requestId, key.accountId, key.keyId, price, endpoint, taskId, pollMs];
  const { fingerprint = "", digest = "" } = idempotency ?? {};
  const fixed = [Math.round(maxAgeMs), upstream, Math.round(retentionMs), key.names.key];
  const kept = [idempotency ? data : "", fingerprint, IDEMPOTENCY_MS, digest];
  return [now, packTiers(tiers), ...request, ...kept, ...fixed];
}

/** KEYS of VOID, in the order of its header. */
export function voidKeys(key: KeyRef, requestId: string, idempotencyDigest: string | undefined): string[] {
  const { names, partition } = key;
  const keys = [requestName(partition, requestId), names.account, names.key, names.window, names.slots];
  keys.push(names.holds, names.done);
  if (idempotencyDigest) keys.push(idempotencyName(partition, idempotencyDigest));
  return keys;
}

/** KEYS of OBSERVE without a poller's, in the order of its header. @param clustered as of BIND */
export function observeKeys(
  task: ObservedTask,
  accountId: string,
  partition: number,
  clustered: boolean,
): string[] {
  const { account, slots, polls, ledger, done } = keyRef(task.creatorKeyId, accountId, partition).names;
  const keys = [taskName(task.taskId, partition, clustered), requestName(partition, task.requestId)];
  keys.push(account, slots, polls, ledger, done);
  return keys;
}

/** ARGV of OBSERVE, in the order of its header. @param now Unix ms, empty for the store's clock */
export function observeArgs(
  now: string,
  tiers: Tiers,
  requestId: string,
  accountId: string,
  said: { status: Observation; data: string },
  refundFailed: boolean,
  pollMs: number,
): (string | number)[] {
  const args = [now, packTiers(tiers), requestId, accountId, said.status, said.data];
  return [...args, refundFailed ? "1" : "0", pollMs, GONE_COUNT, GONE_MS];
}

const packed = new WeakMap<Tiers, string>();

/** Tiers as the scripts read them, `standard` first; packed once per config snapshot. */
export function packTiers(tiers: Tiers): string {
  let text = packed.get(tiers);
  if (text === undefined) {
    const entries = Object.entries(tiers).sort(
      ([a], [b]) => Number(b === "standard") - Number(a === "standard"),
    );
    text = entries.reduce(
      (line, [name, limits]) =>
        `${line}${name} ${limits.rateLimit} ${limits.maxConcurrent} ${limits.dailyLimit}${letters(limits.shadow)};`,
      ";",
    );
    packed.set(tiers, text);
  }
  return text;
}

/** Limits as the scripts name them. */
const LETTERS: Readonly<Record<ShadowLimit, string>> = {
  rate_limit: "r",
  max_concurrent: "c",
  daily_limit: "d",
};

const letters = (limits: readonly ShadowLimit[] = []): string =>
  limits.map((limit) => LETTERS[limit]).join("");

/** The five numbers of the headers, as every verb that serves requests answers them. */
export function stateOf(reply: Reply): LimitState {
  return {
    rateLimit: Number(reply[2]),
    remaining: Number(reply[3]),
    resetAtMs: Number(reply[4]),
    maxConcurrent: Number(reply[5]),
    active: Number(reply[6]),
  };
}

/** Reads the reply of ADMIT; see the header of lua/admit.lua. */
export function admissionOf(reply: Reply): Admission {
  const outcome = reply[0] as Admission["outcome"];
  const common = { state: stateOf(reply), tier: String(reply[7]) };
  switch (outcome) {
    case "admitted": {
      if (reply[8] === undefined) return { outcome, ...common };
      const shadow = SHADOW_LIMITS.filter((limit) => String(reply[8]).includes(LETTERS[limit]));
      return { outcome, ...common, shadow };
    }
    case "rate_limited":
    case "daily_limited":
      return { outcome, ...common, retryAfterMs: Number(reply[8]) };
    case "insufficient_credits":
      return { outcome, ...common, balance: Number(reply[8]) };
    case "replayed":
      return { outcome, ...common, taskId: String(reply[8]), data: String(reply[9]) };
    case "idempotency_in_progress": {
      const dueAtMs = Number(reply[8]);
      const progress = { outcome, ...common, dueAtMs, retryAfterMs: dueAtMs - Number(reply[1]) };
      return reply[9] === "" ? progress : { ...progress, unknown: reply[9] as UnknownOutcome };
    }
    default:
      return { outcome, ...common };
  }
}
