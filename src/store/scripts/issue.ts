import type { OwnLimits } from "../../domain/limits.ts";
import { accountNames, type KeyRef, partitionNames } from "../names.ts";
import type { Script } from "../script-definition.ts";

export interface IssueCall {
  key: KeyRef;
  tier: string;
  /** SHA-256 of the key. */
  digest: string;
  /** The key's own, beyond those of its tier. */
  limits: OwnLimits;
  expiresAtMs?: number | undefined;
  /** Whole credits that come with the key; 0 for none. */
  credits: number;
  /** Under which the credits are granted. */
  reference: string;
}

/** `balance`: credits that can be spent. */
export interface Issued {
  outcome: "issued" | "known" | "too_large";
  balance: number;
}

/** Makes a key, its account where there is none yet, and the credits that come with it. */
export const issue: Script<IssueCall, Issued> = {
  name: "issue",
  isBatched: false,
  keys({ key: { names, accountId, partition } }) {
    const { keys, references } = accountNames(partition, accountId);
    const { accounts, tiers } = partitionNames(partition);
    return [names.key, names.account, keys, accounts, names.ledger, references, tiers];
  },
  args({ key, tier, digest, limits, expiresAtMs, credits, reference }) {
    const { rateLimit, maxConcurrent, dailyLimit } = limits;
    const record = {
      tier,
      sha256: digest,
      rate_limit: rateLimit,
      max_concurrent: maxConcurrent,
      daily_limit: dailyLimit,
      expires_at: expiresAtMs,
    };
    const fields = Object.entries(record).flatMap(([field, value]) =>
      value === undefined ? [] : [field, value],
    );
    return [key.keyId, key.accountId, credits, reference, ...fields];
  },
  read: ([outcome, balance]) => ({ outcome: outcome as Issued["outcome"], balance: Number(balance) }),
};
