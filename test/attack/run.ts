import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";
import { Redis } from "ioredis";
import { issueKey } from "../../src/operations/keys/issue-key.ts";
import { cliActor } from "../../src/records/actor.ts";
import { oneNode, partitionsOf } from "../../src/redis/store-facts.ts";
import { startRedis } from "../../src/sandbox/redis.ts";
import { seedFor } from "../fault/random.ts";
import { givenLargeAccount } from "../support/large-account.ts";
import { type Attack, LARGE_ACCOUNT, type Sent, type Target } from "./attack.ts";
import type { Measured } from "./criteria.ts";
import { type AttackedGateway, logFileIn, startGateway } from "./gateway.ts";
import type { HonestJob, Sample } from "./honest.ts";
import { compareMoney, openHolds } from "./ledger.ts";
import { startProcess } from "./process.ts";
import { startUpstream } from "./upstream.ts";
import { isBack, watchLivez } from "./watch.ts";

const HONEST_PER_SECOND = 25;
/** The first requests compile the gateway. */
const WARM_UP_MS = 2500;
const BASELINE_MS = 4000;
/** A short attack is watched for as long as this: its p99 needs requests. */
const WATCH_MS_MIN = 5000;
/** How much longer than it says an attacker may take. */
const ATTACKER_GRACE_MS = 20_000;
const RECOVERY_MS_MAX = 20_000;
const SETTLE_MS_MAX = 20_000;
const STOP_GRACE_MS = 10_000;
/** Longer than its own patience with the gateway. */
const HONEST_GRACE_MS = 25_000;

export interface RunOptions {
  seed: number;
  folder: string;
  /** Share of the full amounts and times. */
  scale: number;
  /** The source tree that the gateway is run from; this one by default. */
  root?: string | undefined;
  /** How long its recovery is waited for, and the end of its open holds. */
  recoveryMsMax?: number;
  settleMsMax?: number;
}

/** Ended last begun first, whatever happens; also when the campaign is interrupted. */
const cleanups = new Set<() => Promise<void>>();

/** Ends every process of a run that is under way. */
export async function stopAll(): Promise<void> {
  for (const stop of [...cleanups].reverse()) await stop();
}

async function owned<T extends { stop(): Promise<void> }>(starting: Promise<T>): Promise<T> {
  const part = await starting;
  const stop = (): Promise<void> => {
    cleanups.delete(stop);
    return part.stop();
  };
  cleanups.add(stop);
  return part;
}

/** Runs one attack against a gateway of its own, from its start to the settled ledger. */
export async function runAttack(attack: Attack, options: RunOptions): Promise<Measured> {
  const folder = join(options.folder, attack.name);
  mkdirSync(folder, { recursive: true });
  try {
    const server = await owned(startRedis({ dir: join(folder, "redis"), persistent: false }));
    const redis = new Redis(server.url);
    await owned(Promise.resolve({ stop: async () => redis.disconnect() }));
    const upstream = await owned(startUpstream(attack, folder));
    const gateway = await owned(
      startGateway(attack, { folder, root: options.root, redisUrl: server.url, upstreamUrl: upstream.url }),
    );
    const target = await targetOf(attack, gateway, redis, server.url, { ...options, folder });
    const sinceMs = Date.now();
    const honest = await owned(startHonest(folder, gateway, redis));
    const measured = await measure(attack, target, folder, gateway, honest, options.recoveryMsMax);
    await settled(redis, options.settleMsMax);
    return { ...measured, money: await compareMoney(redis, upstream.generator.requests, sinceMs) };
  } finally {
    await stopAll();
  }
}

const ROOMY = { rate_limit: 1_000_000, max_concurrent: 100_000, daily_limit: 1_000_000 };
const KEYS_OF_ONE_ACCOUNT = 26;

async function targetOf(
  attack: Attack,
  { url, adminUrl }: AttackedGateway,
  redis: Redis,
  redisUrl: string,
  { seed, scale, folder }: RunOptions,
): Promise<Target> {
  const owner = await ownerOfMany(redis, attack.accountKeys);
  const shared = await issueKey(oneNode(redis), { ...owner, limits: ROOMY }, cliActor());
  const { accountId } = shared;
  const others = Array.from({ length: KEYS_OF_ONE_ACCOUNT - 1 }, () =>
    issueKey(oneNode(redis), { accountId, limits: ROOMY }, cliActor()),
  );
  const [poor, paid, unseen, ...more] = await Promise.all([
    issueKey(oneNode(redis), {}, cliActor()),
    issueKey(oneNode(redis), { credits: 1_000_000, limits: ROOMY }, cliActor()),
    issueKey(oneNode(redis), { credits: 1000 }, cliActor()),
    ...others,
  ]);
  return {
    attack: attack.name,
    url,
    adminUrl,
    redisUrl,
    logFile: logFileIn(folder),
    poorKey: poor.key,
    paidKey: paid.key,
    paidKeys: [shared, ...more].map(({ key }) => key),
    unseenKey: unseen.key,
    seed: seedFor(seed, attack.name),
    scale,
    durationMs: attack.durationMs * scale,
  };
}

/** The account of `paidKeys`: a new one, or one that has keys. */
async function ownerOfMany(redis: Redis, keys = 0): Promise<{ accountId: string } | { credits: number }> {
  if (keys === 0) return { credits: 1_000_000 };
  const partitions = await partitionsOf(oneNode(redis));
  const { accountId } = await givenLargeAccount(redis, LARGE_ACCOUNT, partitions, {
    keys,
    tasks: 1,
    held: 0,
  });
  return { accountId };
}

interface Honest {
  samples: Sample[];
  /** Resolves once its last answer has come. */
  stop(): Promise<void>;
}

async function startHonest(folder: string, { url }: AttackedGateway, redis: Redis): Promise<Honest> {
  const { key } = await issueKey(oneNode(redis), { credits: 1_000_000, limits: ROOMY }, cliActor());
  const file = join(folder, "honest.json");
  const job: HonestJob = { url, key, perSecond: HONEST_PER_SECOND };
  writeFileSync(file, JSON.stringify(job));
  const child = await startProcess("honest.ts", file);
  const samples: Sample[] = [];
  const lines = createInterface(child.process.stdout!);
  lines.on("line", (line) => samples.push(JSON.parse(line) as Sample));
  const read = new Promise<void>((done) => lines.once("close", done));
  const stop = async (): Promise<void> => {
    await child.stop(HONEST_GRACE_MS);
    await read;
  };
  return { samples, stop };
}

/** The honest customer alone, then with the attack, then until everything is back. */
async function measure(
  attack: Attack,
  target: Target,
  folder: string,
  gateway: AttackedGateway,
  honest: Honest,
  recoveryMsMax?: number,
): Promise<Omit<Measured, "money">> {
  await pause(WARM_UP_MS);
  const baselineFromMs = Date.now();
  await pause(BASELINE_MS * target.scale);
  const before = gateway.residentBytes();
  gateway.forgetPeak();
  const livez = watchLivez(gateway);
  const beganMs = Date.now();
  const { sent, attackFromMs } = await runAttacker(target, folder, attack.preparesMsMax);
  const endedMs = Date.now();
  const recoverySeconds = await recovered(gateway, honest, recoveryMsMax);
  const windowEndMs = Math.max(endedMs, attackFromMs + WATCH_MS_MIN * target.scale);
  await pause(Math.max(0, windowEndMs - Date.now()));
  const after = gateway.residentBytes();
  // Requests that are under way still count.
  await honest.stop();
  const between = (fromMs: number, toMs: number): Sample[] =>
    honest.samples.filter(({ dueMs }) => dueMs >= fromMs && dueMs < toMs);
  return {
    name: attack.name,
    title: attack.title,
    sent,
    attackSeconds: (endedMs - attackFromMs) / 1000,
    baseline: between(baselineFromMs, beganMs),
    during: between(attackFromMs, windowEndMs),
    residentBytes: { before, peak: gateway.peakBytes(), after },
    recoverySeconds,
    livez: await livez.stop(),
    alive: gateway.alive(),
  };
}

/** Runs the attacker's process to its end. @throws when it fails or takes too long */
async function runAttacker(
  target: Target,
  folder: string,
  preparesMsMax = 0,
): Promise<{ sent: Sent; attackFromMs: number }> {
  const file = join(folder, "target.json");
  writeFileSync(file, JSON.stringify(target));
  const child = await startProcess("attacker.ts", file);
  const stop = (): Promise<void> => child.stop(STOP_GRACE_MS);
  cleanups.add(stop);
  const tooLong = setTimeout(() => void child.stop(0), preparesMsMax + target.durationMs + ATTACKER_GRACE_MS);
  let attackFromMs = 0;
  let sent: Sent | undefined;
  for await (const line of createInterface(child.process.stdout!)) {
    if (line === "began") attackFromMs = Date.now();
    else sent = JSON.parse(line) as Sent;
  }
  const how = await child.ended;
  clearTimeout(tooLong);
  cleanups.delete(stop);
  if (sent === undefined) throw new Error(`the attacker of ${target.attack} told nothing: ${how}`);
  return { sent, attackFromMs };
}

/** Seconds until everything is as before the attack; undefined when that takes too long. */
async function recovered(
  gateway: AttackedGateway,
  honest: Honest,
  msMax = RECOVERY_MS_MAX,
): Promise<number | undefined> {
  const fromMs = performance.now();
  while (performance.now() - fromMs < msMax && gateway.alive()) {
    const seconds = (performance.now() - fromMs) / 1000;
    if (await isBack(gateway, honest.samples)) return seconds;
    await pause(100);
  }
  return undefined;
}

/** Waits until no hold is open: what is charged is then charged. */
async function settled(redis: Redis, msMax = SETTLE_MS_MAX): Promise<void> {
  const untilMs = Date.now() + msMax;
  while ((await openHolds(redis)) > 0 && Date.now() < untilMs) await pause(100);
}
