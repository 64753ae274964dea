import type { OwnLimits } from "../domain/limits.ts";
import { monthOf } from "../domain/months.ts";
import { type Actor, cliActor } from "./actor.ts";
import { type IssuedKey, issueKey } from "./issue-key.ts";
import { digestOf, indexName, keyNames, partitionOf } from "./names.ts";
import type { RedisNodes } from "./nodes.ts";
import { OperatorError } from "./operator-error.ts";
import { requireExpiry, requireLabel, requireLimit } from "./operator-values.ts";
import {
  type PartitionReads,
  readsOfAll,
  readsOfMost,
  UnreadError,
  unreadInWords,
} from "./partition-reads.ts";
import type { KeyFields } from "./records.ts";
import { scriptsOf } from "./script-runner.ts";
import { change } from "./scripts/change.ts";
import { storeNowMs } from "./server-clock.ts";
import { partitionsOf } from "./store-facts.ts";

/** One key as operators see it. Times are Unix ms; limits are the key's own, beyond those of its tier. */
export interface KeyRecord {
  keyId: string;
  accountId: string;
  partition: number;
  tier: string;
  label: string | undefined;
  limits: OwnLimits;
  /** Credits that its requests of one UTC month may hold and consume together; undefined: no cap. */
  monthlyCredits: number | undefined;
  /**
   * Credits held and consumed by requests that were admitted in this UTC month, by this machine's clock; of a key that replaces
   * another, those of both.
   */
  spentThisMonth: number;
  /** The key in whose record that is counted, if not in its own. */
  spendsIn: string | undefined;
  createdAtMs: number | undefined;
  expiresAtMs: number | undefined;
  revokedAtMs: number | undefined;
  /** The key that replaces it. */
  rotatedTo: string | undefined;
  /** How often operators changed it. */
  revision: number;
}

/** Where a key's record would be. */
interface Place {
  keyId: string;
  partition: number;
}

/** What `changeKey` may change; null resets a limit to the tier's, or removes label, cap or expiry. */
export interface KeyChanges {
  tier?: string | undefined;
  label?: string | null | undefined;
  monthlyCredits?: number | null | undefined;
  rateLimit?: number | null | undefined;
  maxConcurrent?: number | null | undefined;
  dailyLimit?: number | null | undefined;
  expiresAtMs?: number | null | undefined;
}

/**
 * The key with this id, or this key itself.
 * @throws OperatorError when there is none, UnreadError when it may be where nothing could be read
 */
export async function findKey(nodes: RedisNodes, idOrKey: string): Promise<KeyRecord> {
  const partitions = await partitionsOf(nodes);
  if (idOrKey.startsWith("sk_")) {
    const name = indexName(digestOf(idOrKey));
    const entry = await nodes.ofName(name).get(name);
    const [keyId = "", accountId = ""] = (entry ?? "").split(" ");
    const [key] = entry
      ? await readKeys(readsOfAll(nodes), [{ keyId, partition: partitionOf(accountId, partitions) }])
      : [];
    if (!key) throw new OperatorError("this key is not known", "not_found");
    return key;
  }
  const places = Array.from({ length: partitions }, (_, partition) => ({ keyId: idOrKey, partition }));
  const reads = readsOfMost(nodes);
  const [key] = await readKeys(reads, places);
  const unread = key ? undefined : reads.unread();
  if (unread) throw new UnreadError(`no key ${idOrKey} is found, but ${unreadInWords(unread)}; try it again`);
  // It may be among what an older server has lost.
  if (!key) nodes.requireWritable?.(nodes.all());
  if (!key)
    throw new OperatorError(`no key ${idOrKey}`, "not_found", undefined, "`tollgate keys list` shows all");
  return key;
}

/** The key of this id and account, found without a search; undefined when there is none. */
export async function readKey(
  nodes: RedisNodes,
  keyId: string,
  accountId: string,
): Promise<KeyRecord | undefined> {
  const [key] = await readKeys(readsOfAll(nodes), [
    { keyId, partition: partitionOf(accountId, await partitionsOf(nodes)) },
  ]);
  return key;
}

/** The records that exist among these places. */
export async function readKeys(reads: PartitionReads, places: readonly Place[]): Promise<KeyRecord[]> {
  const records = await reads.many<KeyFields, Place>(places, (pipe, { keyId, partition }) =>
    pipe.hgetall(keyNames(partition, keyId).key),
  );
  const found = records.flatMap((fields, at) => (fields ? [{ fields, place: places[at]! }] : []));
  const others = found.flatMap(({ fields: { spends_in: keyId }, place: { partition } }) =>
    keyId === undefined ? [] : [{ keyId, partition }],
  );
  const counted = await reads.many<(string | null)[], Place>(others, (pipe, { keyId, partition }) =>
    pipe.hmget(keyNames(partition, keyId).key, "month", "spent"),
  );
  const spentOf = new Map(others.map(({ keyId }, at) => [keyId, counted[at]]));
  return found.flatMap(({ fields, place }) => {
    const [month, spent] = spentOf.get(fields.spends_in ?? "") ?? [fields.month, fields.spent];
    return keyRecord(place, fields, { month, spent }) ?? [];
  });
}

/**
 * @param counted what counts toward the key's cap
 * @returns undefined when there is no such key
 */
function keyRecord(
  { keyId, partition }: Place,
  fields: KeyFields,
  counted: { month: string | null | undefined; spent: string | null | undefined },
): KeyRecord | undefined {
  const { account_id: accountId, tier = "" } = fields;
  if (accountId === undefined) return undefined;
  const number = (name: keyof KeyFields): number | undefined =>
    fields[name] === undefined ? undefined : Number(fields[name]);
  return {
    keyId,
    partition,
    accountId,
    tier,
    limits: {
      rateLimit: number("rate_limit"),
      maxConcurrent: number("max_concurrent"),
      dailyLimit: number("daily_limit"),
    },
    createdAtMs: number("created_at"),
    expiresAtMs: number("expires_at"),
    revokedAtMs: number("revoked_at"),
    rotatedTo: fields.rotated_to,
    label: fields.label,
    monthlyCredits: number("monthly_credits"),
    spentThisMonth: Number(counted.month ?? -1) === monthOf(Date.now()) ? Number(counted.spent ?? 0) : 0,
    spendsIn: fields.spends_in,
    revision: number("revision") ?? 0,
  };
}

/** Revokes a key permanently, from its next request on. */
export async function revokeKey(
  nodes: RedisNodes,
  key: KeyRecord,
  actor: Actor = cliActor(),
): Promise<"revoked" | "already_revoked"> {
  const redis = nodes.of(key.partition);
  nodes.requireWritable?.([redis]);
  const { outcome } = await scriptsOf(redis).run(change, {
    ...key,
    unless: "revoked_at",
    fields: { revoked_at: await storeNowMs(redis) },
    action: "key.revoke",
    actor,
  });
  if (outcome === "missing") throw new OperatorError(`there is no key ${key.keyId}`, "not_found");
  return outcome === "changed" ? "revoked" : "already_revoked";
}

/**
 * Changes a key, from its next request on. What is like that already changes nothing, and leaves no audit record.
 * @param ifRevision the revision that the caller has seen
 * @throws OperatorError `conflict` for a revoked key, `stale` when the key has another revision
 */
export async function changeKey(
  nodes: RedisNodes,
  key: KeyRecord,
  changes: KeyChanges,
  actor: Actor = cliActor(),
  ifRevision?: number,
): Promise<"changed" | "unchanged"> {
  requireUnrevoked(key);
  const { tier, label, monthlyCredits, rateLimit, maxConcurrent, dailyLimit, expiresAtMs } = changes;
  requireLabel(label ?? undefined);
  requireLimit(rateLimit ?? undefined, "rate_limit", "limits/");
  requireLimit(maxConcurrent ?? undefined, "max_concurrent", "limits/");
  requireLimit(dailyLimit ?? undefined, "daily_limit", "limits/");
  requireLimit(monthlyCredits ?? undefined, "monthly_credits");
  requireExpiry(expiresAtMs ?? undefined);
  const wanted = {
    tier,
    label,
    monthly_credits: monthlyCredits,
    rate_limit: rateLimit,
    max_concurrent: maxConcurrent,
    daily_limit: dailyLimit,
    expires_at: expiresAtMs,
  };
  const given = Object.entries(wanted).filter((entry): entry is [string, string | number | null] => {
    return entry[1] !== undefined;
  });
  const redis = nodes.of(key.partition);
  nodes.requireWritable?.([redis]);
  const { outcome } = await scriptsOf(redis).run(change, {
    ...key,
    unless: "revoked_at",
    ifRevision,
    fields: Object.fromEntries(given),
    actor,
  });
  switch (outcome) {
    case "changed":
    case "unchanged":
      return outcome;
    case "stale":
      throw new OperatorError(
        `key ${key.keyId} was changed meanwhile; read it again, then change it`,
        "stale",
      );
    case "kept":
      throw isRevoked(key);
    case "missing":
      throw new OperatorError(`there is no key ${key.keyId}`, "not_found");
  }
}

/**
 * Replaces a key by a new one with the same account, tier, own limits, cap and expiry. The old key expires after the overlap. The
 * new one has a window, slots and day of its own. What both spend counts together toward the cap of the month. A key is rotated once: a repeated command must not leave two new keys.
 * @param overlapMs how long the old key remains valid; 0 revokes it at once
 * @returns the new key, and when the old one ends, Unix ms
 * @throws OperatorError for a key that is revoked, expired or rotated
 */
export async function rotateKey(
  nodes: RedisNodes,
  old: KeyRecord,
  overlapMs: number,
  actor: Actor = cliActor(),
): Promise<IssuedKey & { oldEndsAtMs: number }> {
  // Before anything else: without an overlap the rotation has revoked it.
  if (old.rotatedTo !== undefined) throw await whyRotated(nodes, old, old.rotatedTo);
  requireUnrevoked(old);
  const redis = nodes.of(old.partition);
  const nowMs = await storeNowMs(redis);
  const { accountId, tier, limits, expiresAtMs, label, monthlyCredits } = old;
  if (expiresAtMs !== undefined && expiresAtMs <= nowMs) {
    throw new OperatorError(
      `key ${old.keyId} has expired; \`tollgate keys create\` makes a new one`,
      "conflict",
    );
  }
  // The new key first: after a crash in between there are two valid keys, not none.
  const spendsIn = old.spendsIn ?? old.keyId;
  const options = { accountId, tier, limits, expiresAtMs, label, monthlyCredits, spendsIn };
  const issued = await issueKey(nodes, options, actor);
  const oldEndsAtMs = Math.min(nowMs + overlapMs, expiresAtMs ?? Number.MAX_SAFE_INTEGER);
  const end = overlapMs === 0 ? { revoked_at: nowMs } : { expires_at: oldEndsAtMs };
  const { outcome } = await scriptsOf(redis).run(change, {
    ...old,
    unless: "rotated_to",
    fields: { rotated_to: issued.keyId, ...end },
    action: "key.rotate",
    actor,
  });
  if (outcome === "kept") {
    await revokeKey(nodes, { ...old, keyId: issued.keyId }, actor);
    const { key } = keyNames(old.partition, old.keyId);
    throw rotatedBefore(old, (await redis.hget(key, "rotated_to")) ?? "another");
  }
  return { ...issued, oldEndsAtMs };
}

/** Who repeats a rotation that was not confirmed goes by the answer: a failover must not lose the new key after it. */
async function whyRotated(nodes: RedisNodes, old: KeyRecord, newKeyId: string): Promise<OperatorError> {
  if ((await nodes.confirmed?.()) !== false) return rotatedBefore(old, newKeyId);
  return new OperatorError(
    `key ${old.keyId} was rotated into ${newKeyId}, but too few replicas have that, and a failover may lose it; repeat this when they are back`,
    "unavailable",
    undefined,
    "see `tollgate doctor`",
  );
}

function rotatedBefore({ keyId, revokedAtMs }: KeyRecord, newKeyId: string): OperatorError {
  const end =
    revokedAtMs === undefined
      ? `\`tollgate keys set ${keyId} --expires\` moves the end of the old one`
      : undefined;
  return new OperatorError(
    `key ${keyId} was rotated before, into ${newKeyId}; nothing is changed. If the new key was lost, rotate ${newKeyId}`,
    "conflict",
    undefined,
    end,
  );
}

function requireUnrevoked(key: KeyRecord): void {
  if (key.revokedAtMs !== undefined) throw isRevoked(key);
}

const isRevoked = (key: KeyRecord): OperatorError =>
  new OperatorError(
    `key ${key.keyId} is revoked for good; create a new one`,
    "conflict",
    undefined,
    "`tollgate keys create` does",
  );
