import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { idempotencyName } from "../../src/records/names.ts";
import { createScriptRunner, type ScriptRunner } from "../../src/redis/script-runner.ts";
import type { Generation } from "../../src/scripts/holds.ts";
import { accountIn } from "../support/account-money.ts";
import {
  createStage,
  HOLD_MS,
  openConnection,
  randomId,
  type ScriptCall,
  type Stage,
  type TestConnection,
  taskOf,
} from "../support/store.ts";
import { readRequest } from "../support/stored-requests.ts";
import { plantForTest } from "./mutant-client.ts";
import { EQUAL_KEY_MUTANTS } from "./mutants.ts";

// Two requests with one Idempotency-Key, each step of which comes at any time between those of the other.

let connection: TestConnection;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());

type Step = "admit" | "unsent" | "refused" | "due" | "unclear" | "bind";

/** A gateway's steps for one request. */
interface Life {
  /** ADMIT's reply was lost: the gateway only voids the request, and the ADMIT arrives whenever it does. */
  isLost: boolean;
  steps: Step[];
  body: string;
}

const body = fc.constantFrom("one body", "one body", "another body");
const twice = fc.boolean();
/** Settlements may be sent again: the outbox does so. */
const answered: fc.Arbitrary<Life> = fc
  .tuple(
    fc.constantFrom<Step[]>(
      [],
      ["bind"],
      ["refused"],
      ["unsent"],
      ["unclear"],
      ["unclear", "bind"],
      ["unclear", "due"],
      ["unclear", "due", "bind"],
      ["due", "bind"],
    ),
    twice,
    body,
  )
  .map(([ends, isTwice, body]) => ({
    isLost: false,
    steps: ["admit", ...ends.flatMap((step): Step[] => (isTwice ? [step, step] : [step]))],
    body,
  }));
const lost: fc.Arbitrary<Life> = fc
  .tuple(fc.shuffledSubarray<Step>(["admit", "unsent", "unsent"], { minLength: 2 }), body)
  .map(([steps, body]) => ({ isLost: true, steps, body }));
const life = fc.oneof({ weight: 2, arbitrary: answered }, { weight: 1, arbitrary: lost });

/** Two lives, and whose next step comes when. */
const interleaving = fc.record({
  lives: fc.tuple(life, life),
  turns: fc.array(fc.nat(1), { minLength: 14, maxLength: 14 }),
});
type Interleaving = typeof interleaving extends fc.Arbitrary<infer One> ? One : never;

const DIGEST = "one key";
const PRICE = 10;

interface Sent extends Life {
  generation: Generation;
  /** As it was sent at the beginning; only a lost one arrives so late. */
  admission: ScriptCall;
}

async function given(stage: Stage, lives: readonly Life[]): Promise<Sent[]> {
  const key = await stage.givenKey({ credits: 1000 });
  const sent: Sent[] = [];
  for (const { steps, ...life } of lives) {
    const idempotency = { digest: `${key.accountId}-${DIGEST}`, fingerprint: life.body };
    const generation = stage.request(key, {
      requestId: randomId("req"),
      price: PRICE,
      retentionMs: 7_200_000,
      idempotency,
    });
    sent.push({
      ...life,
      steps: [...steps],
      generation,
      admission: await stage.onItsWay(() => stage.admit(generation)),
    });
  }
  return sent;
}

/** @returns the outcome */
async function take(stage: Stage, one: Sent, step: Step): Promise<string> {
  const { generation } = one;
  const arrive = async (call: ScriptCall) => String((await stage.arrive(call))[0]);
  switch (step) {
    case "admit":
      return arrive(one.isLost ? one.admission : await stage.onItsWay(() => stage.admit(generation)));
    case "bind":
      return arrive(await stage.onItsWay(() => stage.bind(generation)));
    case "unclear":
      return arrive(await stage.onItsWay(() => stage.store.noteUnknown(generation, "unclear", 99)));
    case "due":
      stage.clock.nowMs += HOLD_MS;
      return arrive(stage.voiding(generation, step));
    default:
      return arrive(stage.voiding(generation, step));
  }
}

/** Records of a request: its own, its slot, and the entry of the Idempotency-Key if it is this request's. */
async function storedOf({ redis }: Stage, { generation }: Sent) {
  const { key, requestId, idempotency } = generation;
  const record = await readRequest(redis, requestNameOf(generation));
  const entry = await redis.hgetall(idempotencyName(key.partition, idempotency!.digest));
  const slot = await redis.sismember(key.names.slots, requestId);
  return { record, slot, entry: entry.request_id === requestId ? entry : undefined };
}
const requestNameOf = ({ key, requestId }: Generation): string =>
  `tg:{p${key.partition}}:request:${requestId}`;

const isAlive = ({ record }: Awaited<ReturnType<typeof storedOf>>): boolean =>
  record.state === "held" || record.state === "bound";

/** Plays one interleaving and checks it. @throws what it finds */
async function play({ lives, turns }: Interleaving, scripts?: ScriptRunner): Promise<void> {
  const stage = createStage(connection, scripts && { scripts });
  const sent = await given(stage, lives);
  const rest = [0, 1].flatMap((nth) => sent[nth]!.steps.map(() => nth));
  for (const turn of [...turns, ...rest]) {
    const [one, other] = [sent[turn]!, sent[1 - turn]!];
    const step = one.steps.shift();
    if (!step) continue;
    const before = await storedOf(stage, other);
    const outcome = await take(stage, one, step);
    // Its gateway answers the refusal and does nothing more.
    if (step === "admit" && !one.isLost && outcome !== "admitted") one.steps = [];
    if (isAlive(before))
      expect(await storedOf(stage, other), `the other one's, after ${step}`).toEqual(before);
  }
  await checkEnd(stage, sent);
}

async function checkEnd(stage: Stage, sent: readonly Sent[]): Promise<void> {
  const [{ generation }] = sent as [Sent];
  const { key } = generation;
  const stored = await Promise.all(sent.map((one) => storedOf(stage, one)));
  const held = stored.filter(({ record }) => record.state === "held");
  const charged = stored.filter(({ record }) => record.state === "bound" && !record.uncollected);
  expect(charged.length, "charged once at most").toBeLessThanOrEqual(1);
  const money = await accountIn(stage.redis, key.names.account);
  const used = charged.length * PRICE;
  expect([money.balance, money.held, money.total_used].map(Number)).toEqual([
    1000 - used,
    held.length * PRICE,
    used,
  ]);
  expect(await stage.redis.scard(key.names.slots)).toBe(stored.filter(isAlive).length);
  for (const [nth, { record }] of stored.entries())
    if (sent[nth]!.isLost) expect(record.state, "one that its gateway has given up").not.toBe("held");
  for (const one of held) expect(one.entry, "who holds has the Idempotency-Key").toBeDefined();

  const owner = stored.findIndex(({ entry }) => entry);
  const body = sent[Math.max(0, owner)]!.body;
  const repeat = stage.request(key, {
    price: PRICE,
    idempotency: { digest: generation.idempotency!.digest, fingerprint: body },
  });
  const reply = await stage.arrive(await stage.onItsWay(() => stage.admit(repeat)));
  if (owner < 0) expect(reply[0], "a free Idempotency-Key").toBe("admitted");
  else if (held.length > 0) expect(reply[0]).toBe("idempotency_in_progress");
  else expect([reply[0], reply[8]]).toEqual(["replayed", taskOf(sent[owner]!.generation)]);
}

const SEED = Number(process.env.SEED ?? Date.now() % 2 ** 31);

// Guarantee: the second of two requests with one Idempotency-Key never ends the first one's hold, however it ends itself.
test("two requests with one Idempotency-Key: one hold, one slot, one charge, and nobody ends the other's", {
  timeout: 600_000,
}, async () => {
  await fc.assert(
    fc.asyncProperty(interleaving, (one) => play(one)),
    { seed: SEED, numRuns: 150, examples: EXAMPLES },
  );
});

/** The second one's ADMIT has timed out: its VOID comes while the first is at the upstream, before or after that ADMIT. */
const lateOf = (steps: Step[]): Life => ({ isLost: true, steps, body: "one body" });
const lifeOf = (...steps: Step[]): Life => ({ isLost: false, steps, body: "one body" });
const EXAMPLES: [Interleaving][] = [
  { lives: [lifeOf("admit", "bind"), lateOf(["unsent", "admit", "unsent"])], turns: [0, 1, 1, 1, 0] },
  { lives: [lifeOf("admit", "bind"), lateOf(["admit", "unsent"])], turns: [0, 1, 0, 1] },
  { lives: [lifeOf("admit", "bind"), lateOf(["unsent"])], turns: [0, 1, 0] },
  { lives: [lifeOf("admit", "refused"), lateOf(["unsent", "admit"])], turns: [0, 0, 1, 1] },
  { lives: [lifeOf("admit", "unclear", "due", "bind"), lifeOf("admit", "bind")], turns: [0, 0, 0, 1, 0, 1] },
  { lives: [lifeOf("admit", "unclear", "due", "bind"), lifeOf("admit", "bind")], turns: [0, 0, 0, 1, 1, 0] },
  { lives: [lifeOf("admit", "due", "bind"), lifeOf("admit", "refused")], turns: [0, 0, 1, 0, 1] },
].map(({ lives, turns }) => [{ lives: lives as [Life, Life], turns }]);

// No script brings about that a held request lacks its Idempotency-Key; a Redis that was repaired by hand may.
test("neither VOID nor UNCLEAR changes an Idempotency-Key that names another request", () =>
  checkForeignKey());

async function checkForeignKey(scripts?: ScriptRunner): Promise<void> {
  for (const step of ["refused", "unsent", "due", "unclear"] as const) {
    const stage = createStage(connection, scripts && { scripts });
    const [one] = (await given(stage, [lifeOf("admit")])) as [Sent];
    await take(stage, one, "admit");
    const { key, idempotency } = one.generation;
    const name = idempotencyName(key.partition, idempotency!.digest);
    await stage.redis.hset(name, "request_id", "another");
    const before = await stage.redis.hgetall(name);
    expect(await take(stage, one, step)).toBe(step === "unclear" ? "noted" : "void");
    expect(await stage.redis.hgetall(name), step).toEqual(before);
  }
}

test.each(EQUAL_KEY_MUTANTS)("found when planted: $what", { timeout: 120_000 }, async (mutant) => {
  const folder = await plantForTest(mutant);
  const scripts = createScriptRunner(connection.redis, { folder });
  const found = async (): Promise<void> => {
    await checkForeignKey(scripts);
    for (const [one] of EXAMPLES) await play(one, scripts);
  };
  await expect(found()).rejects.toThrow("expected");
});
