import { byLimit, LIMITS, type OwnLimits } from "../domain/limits.ts";
import { type Actor, actorText } from "../records/actor.ts";
import { type GrantKind, storedKind } from "../records/ledger-entries.ts";
import { accountNames, type KeyRef, partitionNames } from "../records/names.ts";
import type { Script } from "./script-definition.ts";

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

/** `balance`: credits that can be spent. */
interface Issued {
  outcome: "issued" | "known" | "unknown_account" | "closed" | "too_many_keys" | "too_large";
  balance: number;
}

export const issue: Script<IssueCall, Issued> = {
  name: "issue",
  keys({ key: { names, accountId, partition } }) {
    const { keys, references } = accountNames(partition, accountId);
    const { accounts, tiers } = partitionNames(partition);
    return [names.key, names.account, keys, accounts, names.ledger, references, tiers];
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
    const { accountMustExist, keysMax = Number.MAX_SAFE_INTEGER } = more;
    const who = actorText(actor);
    const rules = [accountMustExist ? 1 : 0, keysMax];
    return [key.keyId, key.accountId, credits, reference, storedKind(kind), who, ...rules, ...fields];
  },
  read: ([outcome, balance]) => ({ outcome: outcome as Issued["outcome"], balance: Number(balance) }),
};
