import { createHash, randomBytes } from "node:crypto";
import type { Redis } from "ioredis";
import { type KeyRestrictions, restrictionsText } from "../../domain/key-restrictions.ts";
import { LIMITS, type OwnLimits, type Tiers } from "../../domain/limits.ts";
import { NEW_ACCOUNT_ID } from "../../domain/operator-texts.ts";
import { nearest, shown } from "../../domain/problems.ts";
import type { Actor } from "../../records/actor.ts";
import type { GrantKind } from "../../records/ledger-entries.ts";
import {
  accountNames,
  digestOf,
  firstThat,
  indexName,
  keyNames,
  keyRef,
  partitionOf,
  randomId,
} from "../../records/names.ts";
import { accountClosed, noAccount, OperatorError } from "../../records/operator-error.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { storeNowMs } from "../../redis/server-info.ts";
import { partitionsOf, placeOfAccount, type RedisNodes } from "../../redis/store-facts.ts";
import { issue, type ReplacedKey } from "../../scripts/keys.ts";
import {
  requireAccountId,
  requireCredits,
  requireExpiry,
  requireFutureExpiry,
  requireLabel,
  requireLimits,
  requireNewAccountId,
} from "../access/operator-values.ts";
import { randomAccountId, requireAccount } from "../accounts/accounts.ts";

/** Visible ASCII without a comma. */
const API_KEY = /^sk_[\x21-\x2b\x2d-\x7e]{5,253}$/;

export class KnownKeyError extends OperatorError {
  readonly keyId: string;
  readonly accountId: string;

  constructor(keyId: string, accountId: string) {
    super(`this key is known already: ${keyId} of account ${accountId}`, "key_exists");
    this.keyId = keyId;
    this.accountId = accountId;
  }
}

export interface KeyOptions {
  /** Created if missing; random by default. */
  accountId?: string | undefined;
  tier?: string;
  /** Granted in the same step with the reference `key:<key id>`. */
  credits?: number | undefined;
  /** `trial` by default. */
  creditsKind?: GrantKind | undefined;
  limits?: OwnLimits;
  expiresAtMs?: number | undefined;
  label?: string | undefined;
  /** In the form of domain/key-restrictions.ts. */
  restrictions?: KeyRestrictions | undefined;
  /** Random by default. */
  token?: string;
  /** The key whose record counts what this one spends: the first that was rotated. */
  spendsIn?: string | undefined;
  /** Revoked ones included. */
  keysMax?: number | undefined;
  replaces?: ReplacedKey | undefined;
}

export interface IssuedKey {
  /** Cannot be read back from the store. */
  key: string;
  keyId: string;
  accountId: string;
}

const notReserved = (): OperatorError =>
  new OperatorError(
    "replicas do not answer in time, so no key is made and nothing is granted; repeat this when they are back",
    "unavailable",
    undefined,
    "see `tollgate doctor`",
  );

/** Creates a key, and its account if missing. Stores only the SHA-256. @throws KnownKeyError, OperatorError, `stale` of a replaced key */
export async function issueKey(
  nodes: RedisNodes,
  options: KeyOptions = {},
  actor: Actor,
): Promise<IssuedKey> {
  const { credits = 0 } = options;
  const isWritable = (redis: Redis): boolean => nodes.isWritable?.(redis) ?? true;
  const key = options.token ?? firstThat(randomKey, (token) => isWritable(nodes.ofName(indexOf(token))));
  if (!API_KEY.test(key)) {
    throw new OperatorError(
      "an API key begins with sk_ and has 8 to 256 visible characters, without white space and commas",
      "invalid",
      "key",
    );
  }
  requireKeyOptions(options);

  const partitions = await partitionsOf(nodes);
  const digest = digestOf(key);
  const serverOf = (accountId: string): Redis => nodes.of(partitionOf(accountId, partitions));
  const wantedAccount = options.accountId ?? (await randomAccountId(nodes));
  nodes.requireWritable?.([nodes.ofName(indexOf(key)), serverOf(wantedAccount)]);
  // An existing account keeps its id.
  if (!NEW_ACCOUNT_ID.test(wantedAccount)) {
    const { account } = accountNames(partitionOf(wantedAccount, partitions), wantedAccount);
    if ((await serverOf(wantedAccount).exists(account)) === 0) requireNewAccountId(wantedAccount);
  }
  const { keyId, accountId } = await ownIndex(nodes, digest, partitions, wantedAccount, options.accountId);
  // After a failover that loses the index, a repeat would grant the credits again.
  if ((await nodes.confirmed?.()) === false) throw notReserved();
  const partition = partitionOf(accountId, partitions);
  nodes.requireWritable?.([nodes.of(partition)]);
  const { outcome } = await scriptsOf(nodes.of(partition)).run(issue, {
    ...recordOptions(options),
    key: keyRef(keyId, accountId, partition),
    digest,
    spendsIn: options.spendsIn,
    keysMax: options.keysMax,
    replaces: options.replaces,
    credits,
    reference: `key:${keyId}`,
    kind: options.creditsKind ?? "trial",
    actor,
  });
  if (outcome === "known") throw new KnownKeyError(keyId, accountId);
  const name = indexName(digest);
  const reserve = () => nodes.ofName(name).set(name, `${keyId} ${accountId}`, "NX");
  // Of two calls with one token only one may be refused. Whichever ends last restores the index of the key that was issued.
  if (outcome === "issued") {
    if (options.token !== undefined) await reserve();
    return { key, keyId, accountId };
  }
  await nodes.ofName(name).del(name);
  if (await nodes.of(partition).exists(keyNames(partition, keyId).key)) await reserve();
  if (outcome === "too_many_keys") throw tooManyKeys(accountId, options);
  if (outcome === "closed") throw accountClosed(accountId);
  if (outcome === "stale") throw new OperatorError("the key was changed meanwhile", "stale");
  throw new OperatorError("the balance would be too large to be exact", "balance_too_large");
}

interface OnceOptions extends Omit<KeyOptions, "token" | "credits" | "creditsKind" | "replaces"> {
  accountId: string;
  /** A repeat has the same. */
  idempotencyKey: string;
}

/**
 * Once per account and Idempotency-Key, from which its id follows. A repeat answers without the secret.
 * @param requireNew checks a new key, not a repeat @throws OperatorError `not_found`, `conflict`, `invalid`
 */
export async function issueKeyOnce(
  nodes: RedisNodes,
  options: OnceOptions,
  actor: Actor,
  requireNew?: () => void,
): Promise<{ keyId: string; accountId: string; key?: string }> {
  const { accountId, idempotencyKey } = options;
  requireKeyOptions(options);
  const { partition, redis } = await placeOfAccount(nodes, accountId);
  const keyId = keyIdFor(accountId, idempotencyKey);
  const { key: record } = keyNames(partition, keyId);
  const fingerprint = fingerprintOf(options);
  const repeated = (earlier: string | null): { keyId: string; accountId: string } => {
    if (earlier === fingerprint) return { keyId, accountId };
    throw new OperatorError(
      `this Idempotency-Key has made key ${keyId} from another request`,
      "idempotency_mismatch",
      "Idempotency-Key",
    );
  };
  if (await redis.exists(record)) return repeated(await redis.hget(record, "fingerprint"));

  requireNew?.();
  if (options.expiresAtMs !== undefined) requireFutureExpiry(options.expiresAtMs, await storeNowMs(redis));
  const isWritable = (server: Redis): boolean => nodes.isWritable?.(server) ?? true;
  const key = firstThat(randomKey, (token) => isWritable(nodes.ofName(indexOf(token))));
  const index = indexOf(key);
  nodes.requireWritable?.([nodes.ofName(index), redis]);
  await nodes.ofName(index).set(index, `${keyId} ${accountId}`);
  if ((await nodes.confirmed?.()) === false) throw notReserved();
  const { outcome } = await scriptsOf(redis).run(issue, {
    ...recordOptions(options),
    key: keyRef(keyId, accountId, partition),
    digest: digestOf(key),
    fingerprint,
    credits: 0,
    reference: "",
    accountMustExist: true,
    keysMax: options.keysMax,
    actor,
  });
  if (outcome === "issued") return { keyId, accountId, key };
  await nodes.ofName(index).del(index);
  if (outcome === "unknown_account") throw noAccount(accountId);
  if (outcome === "closed") throw accountClosed(accountId);
  if (outcome === "too_many_keys") throw tooManyKeys(accountId, options);
  return repeated(await redis.hget(record, "fingerprint"));
}

const tooManyKeys = (accountId: string, { keysMax }: KeyOptions): OperatorError =>
  new OperatorError(
    `account ${accountId} has ${keysMax} keys, as many as admin.keys_per_account lets it have; revoked keys count`,
    "too_many_keys",
  );

const keyIdFor = (accountId: string, idempotencyKey: string): string =>
  `key_${createHash("sha256").update(`${accountId}\0${idempotencyKey}`).digest("base64url").slice(0, 16)}`;

/** A repeat must ask for the same. */
function fingerprintOf(options: OnceOptions): string {
  const { tier, limits, expiresAtMs, label, restrictions } = recordOptions(options);
  const terms = [tier, expiresAtMs, label, ...LIMITS.map(({ name }) => limits[name]), restrictions];
  return createHash("sha256")
    .update(JSON.stringify(terms.map((value) => value ?? null)))
    .digest("base64url");
}

const recordOptions = ({ tier = "standard", limits = {}, expiresAtMs, label, restrictions }: KeyOptions) => ({
  ...{ tier, limits, expiresAtMs, label },
  restrictions: restrictions && restrictionsText(restrictions),
});

function requireKeyOptions({ accountId, credits = 0, limits = {}, expiresAtMs, label }: KeyOptions): void {
  if (accountId !== undefined) requireAccountId(accountId);
  if (credits !== 0) requireCredits(credits);
  requireLimits(limits);
  requireExpiry(expiresAtMs);
  requireLabel(label);
}

/** Index before record, so that a token is reserved once. A crash leaves an index without one; its key id is used again. */
async function ownIndex(
  nodes: RedisNodes,
  digest: string,
  partitions: number,
  wantedAccount: string,
  namedAccount: string | undefined,
): Promise<{ keyId: string; accountId: string }> {
  const keyId = randomId("key");
  const name = indexName(digest);
  const earlier = await nodes.ofName(name).set(name, `${keyId} ${wantedAccount}`, "NX", "GET");
  if (earlier === null) return { keyId, accountId: wantedAccount };
  const [earlierId = "", accountId = ""] = earlier.split(" ");
  const partition = partitionOf(accountId, partitions);
  if (await nodes.of(partition).exists(keyNames(partition, earlierId).key)) {
    throw new KnownKeyError(earlierId, accountId);
  }
  if (namedAccount !== undefined && namedAccount !== accountId) {
    throw new OperatorError(
      "this key was begun for another account",
      "key_exists",
      undefined,
      `give --account ${accountId}`,
    );
  }
  return { keyId: earlierId, accountId };
}

/** @throws OperatorError for an unknown or deprecated tier */
export function requireNewKeysTier(tiers: () => Tiers, tier: string | undefined): void {
  if (tier === undefined) return;
  const known = tiers();
  const names = Object.keys(known).filter((name) => !known[name]?.deprecated);
  if (names.includes(tier)) return;
  const refused = (why: string): OperatorError => new OperatorError(why, "unknown_tier", "tier");
  if (Object.hasOwn(known, tier))
    throw refused(`the tier ${tier} is deprecated: no new key gets it; there is ${names.join(", ")}`);
  const meant = nearest(tier, names);
  const hint = meant === undefined ? `it has ${names.join(", ")}` : `did you mean ${meant}?`;
  throw refused(`the config has no tier ${shown(tier)}; ${hint}`);
}

const randomKey = (): string => `sk_${randomBytes(32).toString("base64url")}`;
const indexOf = (key: string): string => indexName(digestOf(key));

/** @throws KnownKeyError */
async function requireUnknown(nodes: RedisNodes, token: string): Promise<void> {
  const name = indexOf(token);
  const [keyId = "", accountId = ""] = (await nodes.ofName(name).get(name))?.split(" ") ?? [];
  if (keyId === "") return;
  const partition = partitionOf(accountId, await partitionsOf(nodes));
  if (await nodes.of(partition).exists(keyNames(partition, keyId).key))
    throw new KnownKeyError(keyId, accountId);
}

/**
 * Takes over a key that customers have. A repeat changes nothing. @param requireNew checks a new key, not a repeat
 * @throws OperatorError `not_found` for an unknown account, `conflict` for a key of another one
 */
export async function importKey(
  nodes: RedisNodes,
  options: Omit<KeyOptions, "credits"> & { accountId: string; token: string },
  actor: Actor,
  requireNew: () => void,
): Promise<{ keyId: string; isNew: boolean }> {
  const { accountId, expiresAtMs, token } = options;
  await requireAccount(nodes, accountId);
  requireKeyOptions(options);
  try {
    // A repeat comes when the end has passed, or the tier takes no new keys any more.
    await requireUnknown(nodes, token);
    requireNew();
    if (expiresAtMs !== undefined) {
      const redis = nodes.of(partitionOf(accountId, await partitionsOf(nodes)));
      requireFutureExpiry(expiresAtMs, await storeNowMs(redis));
    }
    const { keyId } = await issueKey(nodes, options, actor);
    return { keyId, isNew: true };
  } catch (error) {
    if (!(error instanceof KnownKeyError)) throw error;
    if (error.accountId === accountId) return { keyId: error.keyId, isNew: false };
    // Whose it is concerns only those who may see that account.
    throw new OperatorError("this key is another account's", "key_exists", "key");
  }
}
