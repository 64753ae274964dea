import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { dueRange, partitionNames } from "../../../src/records/names.ts";
import { oneNode } from "../../../src/redis/store-facts.ts";
import { type Customer, generate } from "../client.ts";
import { outboxEntries } from "../gateways.ts";
import type { ClientEvent, History } from "../history.ts";
import { inParallel, type Random } from "../random.ts";
import { readStore } from "../snapshot.ts";
import type { Wish } from "../upstream.ts";
import { createWorld, eventually, type RunOptions, type World } from "../world.ts";
import type { Scenario } from "./scenario.ts";
import { stepClock, withSteppedClock } from "./stepped-clock.ts";

interface LateBindsSize {
  /** Journals that come back within hours, each with so many settlements. */
  rounds: number;
  requestsEach: number;
  /** In each of the two journals that come back after days; 0: there are none. */
  requestsOld: number;
  /** In the journal that comes back when the clock was days ahead and has been put back; 0: there is none. */
  requestsPutBack: number;
  /** In the journal that comes back when the clock was so far ahead for a moment that the Idempotency-Keys have expired. */
  requestsExpired: number;
}

const SECOND_MS = 1000;
const HOUR_MS = 3600 * SECOND_MS;
const DAY_MS = 24 * HOUR_MS;
/** Past the due time of every hold: 10.2 s. */
const HOLD_MS = 12 * SECOND_MS;
/** Older than half of `tasks.retention`, after which a settlement is given up; and older than all of it. */
const TOO_OLD_MS = 4 * DAY_MS;
const FORGOTTEN_MS = 8 * DAY_MS;
const VICTIM = 2;
const CUSTOMERS = 8;
/** The BINDs of a journal come when all of its requests are admitted. */
const GENERATION_MS = 500;
const WAIT_MAX_MS = 20_000;
/** Of the BINDs that are planned to come late, how many must: on a busy machine some requests are 503. */
const SHARE_MIN = 0.6;

/** The loss on the link to the store: the BIND itself, or only its reply. */
type Cut = "command" | "reply";

/**
 * The link to the store is cut as BINDs come, the gateway is killed with all of them in its journal, the holds end as
 * due, customers repeat their requests elsewhere, and the journal comes back after hours and days of the store's clock.
 */
export const lateBinds: Scenario<LateBindsSize> = {
  name: "late-binds",
  title: ({ rounds, requestsEach, requestsOld, requestsPutBack, requestsExpired }) =>
    `${rounds} journals with ${requestsEach} BINDs each that come back hours after their holds were void, and repeats of ` +
    `their requests were charged; 2 with ${requestsOld} that come back after 4 and 8 days, and 1 with ${requestsPutBack} that ` +
    `comes back when the clock was 8 days ahead and has been put back, and 1 with ${requestsExpired} when that took so short ` +
    "that only the Idempotency-Keys have expired (the clock of the store is stepped)",
  full: { rounds: 6, requestsEach: 120, requestsOld: 60, requestsPutBack: 60, requestsExpired: 60 },
  short: { rounds: 1, requestsEach: 40, requestsOld: 8, requestsPutBack: 8, requestsExpired: 8 },
  run: runLateBinds,
};

/** A request whose BIND waits in a journal, and what its customer does meanwhile. */
interface Planned {
  customer: Customer;
  wish: Partial<Wish>;
  idempotencyKey: string;
  /** The wish of the repeat with the same Idempotency-Key; undefined: none is made. */
  repeat: Partial<Wish> | undefined;
}

async function runLateBinds(options: RunOptions, size: LateBindsSize): Promise<History> {
  const { rounds, requestsEach, requestsOld, requestsPutBack, requestsExpired } = size;
  const world = await createWorld(withSteppedClock(options), 2, {
    commandTimeoutMs: 500,
    maxAgeMs: 30 * DAY_MS,
  });
  try {
    const customers = await Promise.all(Array.from({ length: CUSTOMERS }, () => world.givenCustomer()));
    for (let round = 0; round < rounds; round++) {
      const plan = planRequests(world.random, `${round}`, requestsEach, customers);
      const journal = await leaveJournal(world, plan, `${round}`, "command");
      await endHolds(world);
      await repeatAll(world, plan);
      await stepClock(world, world.random.int(1, 6) * HOUR_MS);
      await bringBack(world, journal);
      options.progress(`${round + 1} of ${rounds} journals back after hours`);
    }
    if (requestsExpired > 0) await expireKeys(world, customers, requestsExpired);
    judge(world, rounds * requestsEach + requestsExpired);
    if (requestsOld + requestsPutBack > 0) await leaveForDays(world, customers, size);
    return await world.finish();
  } finally {
    await world.stop();
  }
}

function planRequests(
  random: Random,
  round: string,
  count: number,
  customers: readonly Customer[],
): Planned[] {
  return Array.from({ length: count }, (_, at) => {
    const keyed = random.chance(0.8);
    const wish = { lifeMs: random.int(1, 60), fails: random.chance(0.3), delayMs: GENERATION_MS };
    // It has ended, still runs, or was refused when the first one's BIND comes.
    const kind = random.chance(0.2) ? "refuses_400" : "ok";
    const lifeMs = random.chance(0.3) ? 8 * SECOND_MS : random.int(1, 60);
    const repeat = keyed && random.chance(0.7) ? { ...wish, kind, lifeMs, delayMs: 0 } : undefined;
    return {
      customer: customers[at % customers.length]!,
      wish,
      idempotencyKey: keyed ? `late-${round}-${at}` : "",
      repeat,
    };
  });
}

/** A gateway is killed with the BINDs of these requests in its journal. @returns the journal's folder */
async function leaveJournal(
  world: World,
  plan: readonly Planned[],
  round: string,
  cut: Cut,
): Promise<string> {
  const journal = join(world.options.folder, `journal-${round}`);
  const victim = await world.startIn(VICTIM, { journal, sweeps: false });
  let isCut = false;
  world.proxy.steer({
    command({ gateway, script }) {
      if (gateway !== victim.name) return undefined;
      if (script === "bind") {
        if (cut === "reply") return undefined;
        isCut = true;
      }
      return isCut ? "freeze" : undefined;
    },
    reply({ gateway, script }) {
      if (gateway !== victim.name) return undefined;
      if (script === "bind") isCut = true;
      return isCut ? "freeze" : undefined;
    },
  });
  const generations = plan.map(async ({ customer, wish, idempotencyKey }) => {
    const leaving = { phase: "waits in the journal", answered: () => undefined };
    world.client.push(await generate(victim, customer, wish, { idempotencyKey, leaving }));
  });
  await Promise.all(generations);
  world.kill(VICTIM, `${linesIn(journal)} settlements in its journal`);
  world.proxy.steer({});
  return journal;
}

function linesIn(journal: string): number {
  const files = readdirSync(journal).filter((name) => name.endsWith(".ndjson"));
  const text = files.map((name) => readFileSync(join(journal, name), "utf8")).join("");
  return text.split("\n").filter((line) => line.includes('"script":"bind"')).length;
}

/** Steps to the due times, and waits until all holds are void. */
async function endHolds(world: World): Promise<void> {
  await stepClock(world, HOLD_MS);
  const ended = await eventually(WAIT_MAX_MS, async () => {
    const lists = Array.from({ length: 4 }, (_, partition) => partitionNames(partition).due);
    const counts = await Promise.all(lists.map((name) => world.redis.zcount(name, ...dueRange("holds"))));
    return counts.every((count) => count === 0);
  });
  if (!ended) world.note("not reached", "holds of a killed gateway are void");
}

/** Customers who know nothing of their first request make it once more. */
async function repeatAll(world: World, plan: readonly Planned[]): Promise<void> {
  const repeated = plan.filter(({ repeat }) => repeat !== undefined);
  await inParallel(repeated.length, 16, async (at) => {
    const { customer, repeat, idempotencyKey } = repeated[at]!;
    let event: ClientEvent;
    let tries = 0;
    do {
      event = await generate(world.gateways[at % 2]!, customer, repeat!, { idempotencyKey });
      world.client.push(event);
      if (event.status === 503 || event.status === 409) await pause(200);
    } while ((event.status === 503 || event.status === 409) && tries++ < 20);
  });
}

/** A new gateway finds the journal, and settles what is in it. */
async function bringBack(world: World, journal: string): Promise<void> {
  const gateway = await world.startIn(VICTIM, { journal });
  world.note("journal back");
  const settled = await eventually(WAIT_MAX_MS, async () => {
    const left = existsSync(journal) ? linesIn(journal) : 0;
    return left === 0 && (await outboxEntries(gateway)) === 0;
  });
  if (!settled) world.note("not reached", "a journal that came back is settled");
  world.gateways[VICTIM] = undefined;
  await gateway.stop();
}

/**
 * Every request is repeated and the repeat charged, the clock is ahead for a moment, and the journal comes back: all requests
 * have their records still, but their Idempotency-Keys have none.
 */
async function expireKeys(world: World, customers: readonly Customer[], count: number): Promise<void> {
  const planned = planRequests(world.random, "expired", count, customers);
  const plan = planned.map((one, at) => ({
    ...one,
    idempotencyKey: `late-expired-${at}`,
    repeat: { ...one.wish, kind: "ok" as const, lifeMs: 1, delayMs: 0 },
  }));
  const journal = await leaveJournal(world, plan, "expired", "command");
  await endHolds(world);
  await repeatAll(world, plan);
  await stepClock(world, FORGOTTEN_MS);
  await stepClock(world, -FORGOTTEN_MS);
  const names = await world.redis.keys("tg:{p*}:idempotency:*");
  if (names.length > 0) world.note("not reached", "the Idempotency-Keys have expired");
  await bringBack(world, journal);
}

/**
 * Three journals come back after days. The BINDs of the first never ran, and are given up. Those of the others ran, their
 * replies were lost, and their requests are forgotten by then: sent again they would be charged once more. The last one
 * comes back when the clock has been put back, so that it is not too old to be sent.
 */
async function leaveForDays(
  world: World,
  customers: readonly Customer[],
  { requestsOld, requestsPutBack }: LateBindsSize,
): Promise<void> {
  const leave = (name: string, count: number, cut: Cut): Promise<string> =>
    leaveJournal(world, planRequests(world.random, name, count, customers), name, cut);
  const never = requestsOld > 0 ? await leave("never", requestsOld, "command") : undefined;
  const lost = requestsOld > 0 ? await leave("lost", requestsOld, "reply") : undefined;
  const putBack = requestsPutBack > 0 ? await leave("put-back", requestsPutBack, "reply") : undefined;
  await endHolds(world);
  const open = async (): Promise<number> => {
    const lists = Array.from({ length: 4 }, (_, partition) => partitionNames(partition).due);
    const counts = await Promise.all(lists.map((name) => world.redis.zcount(name, ...dueRange("polls"))));
    return counts.reduce((sum, each) => sum + each, 0);
  };
  // The older a task, the rarer it is polled, and the steps have aged it: one that still ran is polled after one more.
  const isQuiet = async (): Promise<boolean> => (await open()) === 0;
  for (let steps = 0; steps < 5 && !(await isQuiet()); steps++) {
    await stepClock(world, HOUR_MS);
    await eventually(WAIT_MAX_MS / 4, isQuiet);
  }
  if (!(await isQuiet())) world.note("not reached", "all tasks have ended");
  await stepClock(world, TOO_OLD_MS);
  if (never !== undefined) await bringBack(world, never);
  const records = (await readStore(oneNode(world.redis))).filter(({ name }) => name.includes(":request:"));
  world.forgotten.push(...records);
  await stepClock(world, FORGOTTEN_MS - TOO_OLD_MS);
  // A gateway that starts collects at once.
  world.kill(0, "restarted to collect");
  await world.startIn(0);
  const collected = await eventually(
    WAIT_MAX_MS,
    async () => (await world.redis.exists(records[0]!.name)) === 0,
  );
  if (!collected) world.note("not reached", "old requests are forgotten");
  if (lost !== undefined) await bringBack(world, lost);
  if (putBack === undefined) return;
  await stepClock(world, -FORGOTTEN_MS);
  await bringBack(world, putBack);
  if (!world.proxy.events.some(({ script, outcome }) => script === "bind" && outcome === "forgotten"))
    world.note("not reached", "BINDs of forgotten requests are sent again");
}

/** Late BINDs came in the number that was planned. */
function judge(world: World, planned: number): void {
  const late = world.proxy.events.filter(
    ({ script, outcome }) => script === "bind" && (outcome === "late" || outcome === "uncollected"),
  );
  if (late.length < SHARE_MIN * planned)
    world.note("not reached", `${late.length} late BINDs of ${planned} planned`);
}
