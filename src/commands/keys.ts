import { Command, InvalidArgumentError } from "commander";
import { durationMs } from "../config/kinds.ts";
import type { Limits } from "../core/limits.ts";
import { nearest } from "../core/suggest.ts";
import { type IssuedKey, issueKey, type KeyOptions, OperatorError } from "../store/accounts.ts";
import { readFacts } from "../store/connection.ts";
import {
  changeKey,
  eachKey,
  findKey,
  type KeyChanges,
  type KeyRecord,
  revokeKey,
  rotateKey,
} from "../store/keys.ts";
import { command, futureMs, iso, listing, print, requireConfig, table, whole, withRedis } from "./context.ts";

const rateLimit = whole(1, 100_000);
const maxConcurrent = whole(1, 10_000);
const dailyLimit = whole(1, 1_000_000_000);
const credits = whole(1, 1_000_000_000_000);

interface NewKeyFlags extends Partial<Limits> {
  account?: string;
  tier: string;
  credits?: number;
  expires?: number;
  json?: boolean;
}

interface SetFlags extends Partial<Record<keyof Limits, number | "default">> {
  tier?: string;
  expires?: number | "never";
  json?: boolean;
}

/** `tollgate keys ...` */
export function keysCommand(): Command {
  return new Command("keys")
    .description("API keys: make, show, change and end them")
    .addCommand(createCommand())
    .addCommand(importCommand())
    .addCommand(listCommand())
    .addCommand(showCommand())
    .addCommand(revokeCommand())
    .addCommand(rotateCommand())
    .addCommand(setCommand());
}

const newKey = (name: string, description: string): Command =>
  command(name, description)
    .option("--account <id>", "its account; made when missing, generated when left out")
    .option("--tier <name>", "a tier of the config", "standard")
    .option("--credits <n>", "credits to grant to the account along with it", credits)
    .option("--rate-limit <n>", "requests per rolling 60 seconds, instead of the tier's", rateLimit)
    .option("--max-concurrent <n>", "tasks at the same time, instead of the tier's", maxConcurrent)
    .option("--daily-limit <n>", "requests per UTC day, instead of the tier's", dailyLimit)
    .option("--expires <iso>", "when it ends, such as 2030-01-31T00:00:00Z", futureMs);

function createCommand(): Command {
  return newKey("create", "make a key; it is shown once").action(async (flags: NewKeyFlags) => {
    const { key, keyId, accountId } = await issue(flags);
    const text = `${listing({ key, key_id: keyId, account_id: accountId })}\nKeep the key now: it is not shown again.`;
    print({ json: { key, key_id: keyId, account_id: accountId }, text }, flags);
  });
}

function importCommand(): Command {
  return newKey("import", "take over a key that exists already")
    .argument("<key>", "the key, sk_...")
    .action(async (token: string, flags: NewKeyFlags) => {
      const { keyId, accountId } = await issue(flags, token);
      const json = { key_id: keyId, account_id: accountId };
      print({ json, text: listing(json) }, flags);
    });
}

function issue(flags: NewKeyFlags, token?: string): Promise<IssuedKey> {
  const config = requireConfig();
  requireTier(flags.tier, Object.keys(config.tiers));
  const { account: accountId, tier, credits: granted, expires: expiresAtMs } = flags;
  const options: KeyOptions = { tier, limits: limitsOf(flags) };
  if (accountId !== undefined) options.accountId = accountId;
  if (granted !== undefined) options.credits = granted;
  if (expiresAtMs !== undefined) options.expiresAtMs = expiresAtMs;
  if (token !== undefined) options.token = token;
  return withRedis(async (redis) => {
    // Refuses a store that may evict money.
    await readFacts(redis, config.store.partitions);
    return issueKey(redis, options);
  });
}

function limitsOf(flags: Partial<Limits>): Partial<Limits> {
  const limits: Partial<Limits> = {};
  if (flags.rateLimit !== undefined) limits.rateLimit = flags.rateLimit;
  if (flags.maxConcurrent !== undefined) limits.maxConcurrent = flags.maxConcurrent;
  if (flags.dailyLimit !== undefined) limits.dailyLimit = flags.dailyLimit;
  return limits;
}

function requireTier(tier: string, tiers: string[]): void {
  if (tiers.includes(tier)) return;
  const meant = nearest(tier, tiers);
  const hint = meant === undefined ? `it has ${tiers.join(", ")}` : `did you mean ${meant}?`;
  throw new OperatorError(`the config has no tier ${tier}; ${hint}`);
}

function listCommand(): Command {
  return command("list", "all keys, or those of one account")
    .option("--account <id>", "of this account only")
    .action(async (flags: { account?: string; json?: boolean }) => {
      const keys = await withRedis((redis) => Array.fromAsync(eachKey(redis, flags.account)));
      keys.sort((a, b) => (a.createdAtMs ?? 0) - (b.createdAtMs ?? 0));
      const rows = keys.map((key) => {
        const { account_id, tier, status, created_at } = shown(key);
        return [key.keyId, account_id, tier, status, created_at];
      });
      const text = table(["KEY ID", "ACCOUNT", "TIER", "STATUS", "CREATED"], rows);
      print({ json: { keys: keys.map(shown) }, text }, flags);
    });
}

function showCommand(): Command {
  return onKey("show", "one key").action(async (id: string, flags: { json?: boolean }) => {
    const key = await withRedis((redis) => findKey(redis, id));
    print({ json: shown(key), text: listing(shown(key)) }, flags);
  });
}

function revokeCommand(): Command {
  return onKey("revoke", "end a key at once and for good").action(
    async (id: string, flags: { json?: boolean }) => {
      const { key, done } = await withRedis(async (redis) => {
        const found = await findKey(redis, id);
        return { done: await revokeKey(redis, found), key: await findKey(redis, found.keyId) };
      });
      const text = done ? `Key ${key.keyId} is revoked.` : `Key ${key.keyId} was revoked before.`;
      print({ json: { outcome: done ? "revoked" : "already_revoked", ...shown(key) }, text }, flags);
    },
  );
}

function rotateCommand(): Command {
  return onKey("rotate", "make a new key like this one, and end this one")
    .option("--overlap <duration>", "how long the old one goes on, such as 24h", overlapMs, 0)
    .action(async (id: string, flags: { overlap: number; json?: boolean }) => {
      const { old, issued } = await withRedis(async (redis) => {
        const found = await findKey(redis, id);
        return { issued: await rotateKey(redis, found, flags.overlap), old: found };
      });
      const { key, keyId, accountId } = issued;
      const json = { key, key_id: keyId, account_id: accountId, old_key_id: old.keyId };
      const text = `${listing(json)}\nKeep the key now: it is not shown again.`;
      print({ json, text }, flags);
    });
}

function setCommand(): Command {
  return onKey("set", "change what a key may do, from its next request on")
    .option("--tier <name>", "a tier of the config")
    .option("--rate-limit <n|default>", "requests per rolling 60 seconds", or("default", rateLimit))
    .option("--max-concurrent <n|default>", "tasks at the same time", or("default", maxConcurrent))
    .option("--daily-limit <n|default>", "requests per UTC day", or("default", dailyLimit))
    .option("--expires <iso|never>", "when it ends", or("never", futureMs))
    .action(async (id: string, flags: SetFlags) => {
      const changes = changesOf(flags);
      if (Object.keys(changes).length === 0) {
        throw new OperatorError("nothing to change; give an option such as --tier or --rate-limit");
      }
      if (changes.tier !== undefined) requireTier(changes.tier, Object.keys(requireConfig().tiers));
      const key = await withRedis(async (redis) => {
        const found = await findKey(redis, id);
        await changeKey(redis, found, changes);
        return findKey(redis, found.keyId);
      });
      print({ json: shown(key), text: listing(shown(key)) }, flags);
    });
}

const onKey = (name: string, description: string): Command =>
  command(name, description).argument("<key-id>", "the key's id, or the key itself");

/** Commander takes null for a missing value, so the word itself stands for it. */
const or =
  <const Word extends string>(word: Word, parse: (text: string) => number) =>
  (text: string): number | Word =>
    text === word ? word : parse(text);

function changesOf({ tier, expires, ...limits }: SetFlags): KeyChanges {
  const changes: KeyChanges = {};
  if (tier !== undefined) changes.tier = tier;
  for (const name of ["rateLimit", "maxConcurrent", "dailyLimit"] as const) {
    const limit = limits[name];
    if (limit !== undefined) changes[name] = limit === "default" ? null : limit;
  }
  if (expires !== undefined) changes.expiresAtMs = expires === "never" ? null : expires;
  return changes;
}

function overlapMs(text: string): number {
  const ms = durationMs(text);
  if (ms === undefined || ms > 366 * 86_400_000) {
    throw new InvalidArgumentError("It must be a duration such as 30m, 24h or 7d, at most 366d.");
  }
  return ms;
}

/** A key as it is printed: never its digest. Absent limits are the tier's. */
export function shown(key: KeyRecord): Record<string, unknown> {
  const { keyId, accountId, tier, limits, createdAtMs, expiresAtMs, revokedAtMs } = key;
  const expired = expiresAtMs !== undefined && expiresAtMs <= Date.now();
  return {
    key_id: keyId,
    account_id: accountId,
    tier,
    status: revokedAtMs !== undefined ? "revoked" : expired ? "expired" : "active",
    rate_limit: limits.rateLimit,
    max_concurrent: limits.maxConcurrent,
    daily_limit: limits.dailyLimit,
    created_at: iso(createdAtMs),
    expires_at: iso(expiresAtMs),
    revoked_at: iso(revokedAtMs),
  };
}
