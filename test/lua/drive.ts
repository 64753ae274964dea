import type { Limits, Tiers } from "../../src/domain/limits.ts";
import { idempotencyName, type KeyRef } from "../../src/records/names.ts";
import type { ScriptRunner } from "../../src/redis/script-runner.ts";
import type { Reply } from "../../src/scripts/script-definition.ts";
import { createStage, type ScriptCall, type Stage, type TestConnection } from "../support/store.ts";
import type { Scenario } from "./commands.ts";
import { checkInvariants } from "./invariants.ts";
import { recharge } from "./model.ts";
import type { ModelKey, ModelRequest, World } from "./model-state.ts";
import { digestsOf, expectedState, storedState } from "./state.ts";
import { same, step } from "./steps.ts";

/** Small enough that every refusal occurs. */
const TIERS: Tiers = {
  standard: { rate_limit: 5, max_concurrent: 3, daily_limit: 6 },
  enterprise: { rate_limit: 8, max_concurrent: 4, daily_limit: 8 },
  watched: { rate_limit: 2, max_concurrent: 3, daily_limit: 3, shadow: ["rate_limit", "daily_limit"] },
};
/** A request as the model knows it, with its ADMIT as it would be sent. */
export interface Sent {
  request: ModelRequest;
  admit: ScriptCall;
  notAfterMs: number;
}

export interface Run {
  stage: Stage;
  world: World;
  refs: KeyRef[];
  sent: Sent[];
  /** The widest limits that each key ever had. */
  widest: Map<string, Limits>;
  /** When each Idempotency-Key expires, by the clock of this run. */
  expiries: Map<string, number>;
}

/** Plays one scenario against the store and the model. @throws Disagreement where they do not agree */
export async function play(
  connection: TestConnection,
  scenario: Scenario,
  options: { scripts?: ScriptRunner; seen?: (script: string, reply: Reply) => void } = {},
): Promise<void> {
  const run = await givenRun(createStage(connection, { tiers: TIERS, ...options }), scenario.onePartition);
  for (const [at, command] of scenario.commands.entries()) {
    const where = `step ${at}, ${JSON.stringify(command)}`;
    if (command.kind !== "time") await expireKeys(run);
    await step(run, command, where);
    same(await storedState(run), expectedState(run), `${where}: stored state`);
  }
  await checkInvariants(run);
}

/** Redis deletes what has expired when it is used next, by its own clock; so it is done here by the clock of the run. */
async function expireKeys(run: Run): Promise<void> {
  const { stage, world } = run;
  for (const { digest, partition } of digestsOf(run)) {
    const { expiresAtMs = Number.POSITIVE_INFINITY } = world.idempotency.get(digest) ?? {};
    if (expiresAtMs > world.nowMs) continue;
    world.idempotency.delete(digest);
    await stage.redis.del(idempotencyName(partition, digest));
  }
}

async function givenRun(stage: Stage, onePartition: boolean): Promise<Run> {
  const { partition, clock } = stage;
  const world: World = {
    isClustered: stage.connection.known.facts?.cluster ?? false,
    nowMs: clock.nowMs,
    tiers: TIERS,
    keys: [],
    requests: [],
    tasks: new Map(),
    idempotency: new Map(),
    turns: 0,
  };
  const run: Run = { stage, world, refs: [], sent: [], widest: new Map(), expiries: new Map() };
  const first = await addKey(run, { credits: 100, tier: "standard", own: FIRST_LIMITS, partition });
  await addKey(run, { credits: 0, tier: "misspelt", own: {}, partition, account: first.account });
  await addKey(run, {
    credits: 60,
    tier: "enterprise",
    own: {},
    partition: onePartition ? partition : partition + 1,
  });
  await addKey(run, { credits: 90, tier: "watched", own: {}, partition });
  return run;
}

const NAMES = {
  rate_limit: "rate_limit",
  max_concurrent: "max_concurrent",
  daily_limit: "daily_limit",
} as const;

const FIRST_LIMITS = { rate_limit: 4, max_concurrent: 3, daily_limit: 5 };

async function addKey(
  run: Run,
  wanted: {
    credits: number;
    tier: string;
    own: Partial<Limits>;
    partition: number;
    account?: ModelKey["account"];
  },
): Promise<ModelKey> {
  const { stage, world } = run;
  const { credits, tier, own, partition, account: shared } = wanted;
  const ids = shared ? { accountId: shared.id } : {};
  const ref = await stage.givenKey({ credits, tier, partition, ownLimits: false, ...own, ...ids });
  const account = shared ?? {
    id: ref.accountId,
    balance: 0,
    totalUsed: 0,
    totalRequests: 0,
    limitsTurn: 0,
    admissions: [],
    ledger: [],
    references: new Map<string, string>(),
    refunds: new Set<string>(),
    reversed: new Map<string, number>(),
    collectedUntilMs: 0,
  };
  const key: ModelKey = {
    keyId: ref.keyId,
    account,
    partition,
    tier,
    own: { ...own },
    revoked: false,
    forgotten: [],
    spendings: [],
    monthBeganMs: 0,
  };
  if (credits > 0) recharge(world, key, credits, `key:${ref.keyId}`);
  world.keys.push(key);
  run.refs.push(ref);
  // A limit in shadow mode bounds nothing.
  const free = (TIERS[tier]?.shadow ?? []).map((limit) => [NAMES[limit], Number.POSITIVE_INFINITY]);
  const limits = { ...(TIERS[tier] ?? TIERS.standard), ...own, ...Object.fromEntries(free) };
  run.widest.set(ref.keyId, limits as Limits);
  return key;
}
