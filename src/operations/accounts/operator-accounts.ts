import { byLimit, type LimitChanges, type Limits, TIER_LIMITS } from "../../domain/limits.ts";
import { MULTIPLIER_RULE, multiplierText } from "../../domain/money.ts";
import { type Metadata, metadataProblem } from "../../domain/operator-texts.ts";
import type { Actor } from "../../records/actor.ts";
import { accountNames } from "../../records/names.ts";
import { changedMeanwhile, noAccount, OperatorError } from "../../records/operator-error.ts";
import { accountOf } from "../../records/packed-fields.ts";
import { type AccountRecord, type AccountStatus, statusOf } from "../../records/records.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { placeOfAccount, type RedisNodes, writablePlace } from "../../redis/store-facts.ts";
import { account, suspend } from "../../scripts/accounts.ts";
import { gatherAll } from "../../scripts/keys.ts";
import {
  given,
  requireAccountId,
  requireLabel,
  requireLimits,
  requireNewAccountId,
} from "../access/operator-values.ts";
import { keyIdPages } from "../keys/keys.ts";
import { type AccountRow, accountRow, randomAccountId } from "./accounts.ts";

export const ACCOUNT_STATUSES = ["active", "suspended", "closed"] as const satisfies AccountStatus[];

type AccountLimits = { [Name in keyof Limits]: number | null };

export interface AccountObject extends AccountRow {
  label: string | null;
  metadata: Metadata | null;
  status: AccountStatus;
  /** Credits below which it is told, the highest first. */
  creditsBelow: number[];
  limits: AccountLimits;
  /** A decimal; 1 by default. */
  priceMultiplier: string;
  createdAtMs: number;
  revision: number;
}

/** Null removes; undefined keeps. */
export interface AccountChanges {
  label?: string | null | undefined;
  metadata?: Metadata | null | undefined;
  status?: AccountStatus | undefined;
  creditsBelow?: readonly number[] | undefined;
  limits?: Pick<LimitChanges, keyof Limits> | undefined;
  priceMultiplier?: number | null | undefined;
}

export function accountObject(accountId: string, record: AccountRecord): AccountObject {
  return {
    ...accountRow(accountId, record),
    label: record.label ?? null,
    metadata: record.metadata === undefined ? null : (JSON.parse(record.metadata) as Metadata),
    status: statusOf(record.status),
    creditsBelow: record.alerts === undefined ? [] : record.alerts.split(" ").map(Number),
    limits: byLimit(TIER_LIMITS, ({ name }) => (record[name] === undefined ? null : Number(record[name]))),
    priceMultiplier: record.price_multiplier ?? "1",
    createdAtMs: Number(record.created_at ?? 0),
    revision: Number(record.revision ?? 0),
  };
}

/** @throws OperatorError `conflict` if it exists */
export async function createAccount(
  nodes: RedisNodes,
  wanted: { accountId?: string | undefined } & Pick<AccountChanges, "label" | "metadata" | "limits">,
  actor: Actor,
): Promise<AccountObject> {
  if (wanted.accountId !== undefined) requireNewAccountId(wanted.accountId);
  const fields = fieldsOf({ label: wanted.label, metadata: wanted.metadata, limits: wanted.limits });
  const accountId = wanted.accountId ?? (await randomAccountId(nodes));
  const { partition, redis } = await writablePlace(nodes, accountId);
  const call = { partition, accountId, action: "account.create", actor, fields } as const;
  const reply = await scriptsOf(redis).run(account, call);
  if (reply.outcome === "created") return accountObject(accountId, reply.record);
  throw new OperatorError(`there is an account ${accountId} already`, "account_exists", "account_id");
}

export async function readAccountObject(nodes: RedisNodes, accountId: string): Promise<AccountObject> {
  requireAccountId(accountId);
  const { partition, redis } = await placeOfAccount(nodes, accountId);
  const record = accountOf(await redis.hgetall(accountNames(partition, accountId).account));
  if (record.balance === undefined) throw noAccount(accountId);
  return accountObject(accountId, record);
}

interface ChangeRules {
  ifRevisions?: readonly number[] | undefined;
  mayReinstate?: boolean;
}

/** Suspending and closing work without memory in Redis. @throws OperatorError `not_found`, `stale`, `forbidden` to lift a suspension */
export async function patchAccount(
  nodes: RedisNodes,
  accountId: string,
  changes: AccountChanges,
  actor: Actor,
  { ifRevisions, mayReinstate = true }: ChangeRules = {},
): Promise<AccountObject> {
  requireAccountId(accountId);
  const fields = fieldsOf(changes);
  const { partition, redis } = await writablePlace(nodes, accountId);
  const call = { partition, accountId, ifRevisions, mayReinstate, actor };
  const { run } = scriptsOf(redis);
  const status = onlyRestriction(fields);
  const reply = status
    ? await run(suspend, { ...call, status })
    : await run(account, { ...call, action: "account.patch", fields });
  switch (reply.outcome) {
    case "changed":
    case "unchanged":
    case "created":
      // An earlier call may have been interrupted.
      if (changes.limits && reply.record.limited !== undefined) await gatherSlots(nodes, accountId);
      return accountObject(accountId, reply.record);
    case "stale":
      throw changedMeanwhile(`account ${accountId}`);
    case "restricted":
      throw new OperatorError(
        "only a token with the scope accounts:reinstate lifts a suspension or opens a closed account",
        "forbidden",
      );
    default:
      throw noAccount(accountId);
  }
}

function onlyRestriction(fields: Readonly<Record<string, unknown>>): "suspended" | "closed" | undefined {
  const { status, ...others } = fields;
  if (Object.keys(others).length > 0) return undefined;
  return status === "suspended" || status === "closed" ? status : undefined;
}

/** In pages, while the keys change. */
async function gatherSlots(nodes: RedisNodes, accountId: string): Promise<void> {
  for await (const { partition, keyIds } of keyIdPages(nodes, accountId))
    await gatherAll(scriptsOf(nodes.of(partition)).run, { partition, accountId, keyIds });
}

export const ALERTS_MAX = 10;

/** As the record has them; null for none. */
const alertsOf = (creditsBelow: readonly number[]): string | null =>
  [...new Set(creditsBelow)].sort((a, b) => b - a).join(" ") || null;

/** Null removes. @throws OperatorError */
function fieldsOf(changes: AccountChanges) {
  const { label, metadata, status, creditsBelow, limits = {}, priceMultiplier } = changes;
  requireLabel(label ?? undefined);
  const problem = metadata ? metadataProblem(metadata) : undefined;
  if (problem !== undefined) throw new OperatorError(problem, "invalid", "metadata");
  requireLimits(limits);
  const multiplier = priceMultiplier == null ? priceMultiplier : multiplierText(priceMultiplier);
  if (priceMultiplier != null && multiplier === undefined)
    throw new OperatorError(MULTIPLIER_RULE, "invalid", "price_multiplier");
  return given<string | number | null>({
    label,
    metadata: metadata ? JSON.stringify(metadata) : metadata,
    status: status === "active" ? null : status,
    alerts: creditsBelow && alertsOf(creditsBelow),
    // Nothing is stored for 1, so that it costs nothing.
    price_multiplier: multiplier === "1" ? null : multiplier,
    ...byLimit(TIER_LIMITS, ({ name }) => limits[name]),
  });
}
