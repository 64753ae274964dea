import { byLimit, LIMITS, type OwnLimits } from "../domain/limits.ts";
import { type Actor, actorText } from "../records/actor.ts";
import { type GrantKind, storedKind } from "../records/ledger-entries.ts";
import { accountNames, type KeyRef, keyNames, partitionNames } from "../records/names.ts";
import type { Run, Script } from "./script-definition.ts";

interface IssueCall {
  key: KeyRef;
  tier: string;
  /** SHA-256 of the key. */
  digest: string;
  /** The key's own, beyond those of its tier. */
  limits: OwnLimits;
  expiresAtMs?: number | undefined;
  label?: string | undefined;
  /** As domain/key-restrictions.ts writes them. */
  restrictions?: string | undefined;
  /** The key with which it counts what it spends: the first of those that it replaces. */
  spendsIn?: string | undefined;
  /** Of the call that makes the key, where that may be repeated. */
  fingerprint?: string | undefined;
  /** The key that it replaces, as the caller has seen it, and when that one ends or is revoked (Unix ms). */
  replaces?: ReplacedKey | undefined;
  /** True refuses to create the account. */
  accountMustExist?: boolean;
  /** How many keys the account may have, revoked ones included; no bound when left out. */
  keysMax?: number | undefined;
  /** Whole credits that come with the key; 0 for none. */
  credits: number;
  reference: string;
  kind?: GrantKind;
  actor: Actor;
}

export interface ReplacedKey {
  keyId: string;
  revision: number;
  end: { field: "revoked_at" | "expires_at"; atMs: number };
}

/** `balance`: credits that can be spent. */
interface Issued {
  outcome: "issued" | "known" | "unknown_account" | "closed" | "too_many_keys" | "stale" | "too_large";
  balance: number;
}

export const issue: Script<IssueCall, Issued> = {
  name: "issue",
  keys({ key: { names, accountId, partition }, replaces }) {
    const { keys, references } = accountNames(partition, accountId);
    const { accounts, tiers } = partitionNames(partition);
    const oldKey = replaces ? keyNames(partition, replaces.keyId).key : names.key;
    return [names.key, names.account, keys, accounts, names.ledger, references, tiers, oldKey];
  },
  args({ key, tier, digest, limits, credits, reference, kind = "purchase", actor, ...more }) {
    const record = {
      tier,
      sha256: digest,
      ...byLimit(LIMITS, ({ name }) => limits[name]),
      expires_at: more.expiresAtMs,
      label: more.label,
      restrictions: more.restrictions,
      fingerprint: more.fingerprint,
      spends_in: more.spendsIn,
    };
    const fields = Object.entries(record).flatMap(([field, value]) =>
      value === undefined ? [] : [field, value],
    );
    const { accountMustExist, keysMax = Number.MAX_SAFE_INTEGER, replaces } = more;
    const who = actorText(actor);
    const rules = [accountMustExist ? 1 : 0, keysMax];
    const old = replaces ? [replaces.revision, replaces.end.field, replaces.end.atMs] : ["", "", ""];
    return [key.keyId, key.accountId, credits, reference, storedKind(kind), who, ...rules, ...old, ...fields];
  },
  read: ([outcome, balance]) => ({ outcome: outcome as Issued["outcome"], balance: Number(balance) }),
};

interface ChangeCall {
  keyId: string;
  partition: number;
  /** Nothing is changed if the record has another revision. */
  ifRevisions?: readonly number[] | undefined;
  /** Null removes a field. */
  fields: Readonly<Record<string, string | number | null>>;
  actor: Actor;
}

type Changed =
  | { outcome: "changed"; revision: number }
  | { outcome: "unchanged" | "revoked" | "stale" | "missing" };

export const change: Script<ChangeCall, Changed> = {
  name: "change",
  keys: ({ partition, keyId }) => [keyNames(partition, keyId).key, partitionNames(partition).tiers],
  args: ({ ifRevisions = [], actor, fields }) => [
    ifRevisions.join(),
    actorText(actor),
    ...fieldsAndValues(fields),
  ],
  read([outcome, , revision]) {
    if (outcome === "changed") return { outcome, revision: Number(revision) };
    return { outcome: outcome as "unchanged" | "revoked" | "stale" | "missing" };
  },
};

/** Fields as lua/include/changes.lua takes them. Null removes one. */
export const fieldsAndValues = (fields: Readonly<Record<string, string | number | null>>) =>
  Object.entries(fields).flatMap(([field, value]) => [field, value ?? ""]);

interface RevokeCall {
  keyId: string;
  partition: number;
  actor: Actor;
}

export const revoke: Script<RevokeCall, "revoked" | "already_revoked" | "missing"> = {
  name: "revoke",
  keys: ({ partition, keyId }) => [keyNames(partition, keyId).key, partitionNames(partition).tiers],
  args: ({ keyId, actor }) => [keyId, actorText(actor)],
  read: ([outcome]) => outcome as "revoked" | "already_revoked" | "missing",
};

/** Tells accounts of their keys that end soon. `taken`: how many were due, at most as many as were asked for. */
export const expiring: Script<{ partition: number; most: number }, { taken: number }> = {
  name: "expiring",
  keys: ({ partition }) => [partitionNames(partition).expiring],
  args: ({ most }) => [most],
  read: ([, taken]) => ({ taken: Number(taken) }),
};

const SLOTS_AT_ONCE = 200;

interface GatherCall {
  partition: number;
  accountId: string;
  keyIds: readonly string[];
  /** Where the slots of the first key go on. */
  cursor?: string;
}

/** `done`: of these keys; the slots of the next one go on at `cursor`. */
type GatherReply = { outcome: "unlimited" } | { outcome: "gathered"; done: number; cursor: string };

export const gather: Script<GatherCall, GatherReply> = {
  name: "gather",
  keys({ partition, accountId }) {
    const { account, slots } = accountNames(partition, accountId);
    return [account, slots];
  },
  args: ({ partition, keyIds, cursor = "0" }) => [
    keyNames(partition, "").slots,
    SLOTS_AT_ONCE,
    cursor,
    ...keyIds,
  ],
  read([outcome, , done, cursor]) {
    if (outcome === "unlimited") return { outcome };
    return { outcome: "gathered", done: Number(done), cursor: String(cursor) };
  },
};

export async function gatherAll(run: Run, call: Omit<GatherCall, "cursor">): Promise<void> {
  let { keyIds } = call;
  let cursor = "0";
  while (keyIds.length > 0) {
    const reply = await run(gather, { ...call, keyIds, cursor });
    if (reply.outcome === "unlimited") return;
    keyIds = keyIds.slice(reply.done);
    cursor = reply.cursor;
  }
}
