import { setTimeout as delay } from "node:timers/promises";
import { type KeyRef, keyRef, partitionOf } from "../../src/records/names.ts";
import type { Generation } from "../../src/scripts/holds.ts";
import { cpuUs } from "../cpu.ts";
import { emptyStore, GENEROUS, issueKeys } from "../keys.ts";
import { makeKeys } from "../mass-keys.ts";
import { partitions } from "../recorder.ts";
import type { Context, Outcome, Scenario } from "../scenario.ts";
import { judge, short } from "../targets.ts";
import { OUR_TREE, openStore } from "../tree.ts";
import { median } from "./compare.ts";
import { admit, each, TIERS } from "./drive.ts";

const FEW = 1000;
const MANY = 1_000_000;
const SAMPLES = 20;
/** For the append-only file to be flushed. */
const FLUSH_MS = 2000;
/** A table that has grown is moved a bucket at each look into it; so many looks end it. */
const LOOKS = 20;
const LOOK_A_MILLION_TIMES = 'for n = 1, 1000000 do redis.call("EXISTS", KEYS[1]) end';

const WINDOW_MS = 60_000;
/** Limit, keys that are driven in step, steps that are measured once the window is full. */
const WINDOWS = [
  { limit: 20, keys: 500, steps: 40 },
  { limit: 10_000, keys: 40, steps: 500 },
] as const;

export const growth: Scenario = {
  title: "Growth: Redis per admission",
  quick: false,
  needs: [],
  targets: ["byKeys", "byLimit"],
  async run(context): Promise<Outcome> {
    // The few once before and once after, so that what drifts meets both.
    const before = await byKeys(context, FEW);
    const many = median(await byKeys(context, MANY));
    const few = median([...before, ...(await byKeys(context, FEW))]);
    const windows: number[] = [];
    for (const window of WINDOWS) windows.push(await byLimit(context, window));
    const [small = Number.NaN, large = Number.NaN] = windows;
    return {
      method: `Admissions through the tree's own store, 64 at a time. Keys: the first admission of ${FEW} keys at a time, ${SAMPLES} times, the fewer of them before and after the many. Limits: windows that are full, where with each admission an entry leaves and one comes, on a clock of our own.`,
      tables: [
        {
          columns: ["", "Redis CPU us per admission"],
          rows: [
            [`${FEW.toLocaleString("en")} keys in Redis`, short(few)],
            [`${MANY.toLocaleString("en")} keys in Redis`, short(many)],
            ...WINDOWS.map(({ limit }, at) => [
              `limit ${limit.toLocaleString("en")}, window full`,
              short(windows[at]!),
            ]),
          ],
        },
      ],
      verdicts: [judge("byKeys", many / few), judge("byLimit", large / small)],
      disturbed: [],
      figures: { few, many, small, large },
    };
  },
};

/** Costs of a key's first admission while so many keys exist; each sample takes others. */
async function byKeys({ world, progress }: Context, count: number): Promise<number[]> {
  await emptyStore(world);
  const { store, close } = await openStore(world.redisUrl);
  try {
    const samples: number[] = [];
    let refOf = await makeKeys(world, OUR_TREE, count);
    if (count > FEW)
      for (let n = 0; n < LOOKS; n++) await world.redis.eval(LOOK_A_MILLION_TIMES, 1, "tg:meta");
    await delay(FLUSH_MS);
    for (let sample = 0; sample < SAMPLES; sample++) {
      if (count === FEW && sample > 0) {
        await emptyStore(world);
        refOf = await makeKeys(world, OUR_TREE, count);
      }
      // Spread over all keys, and none of them twice.
      const stride = count / FEW;
      const refs = Array.from({ length: FEW }, (_, n) => refOf(n * stride + (count === FEW ? 0 : sample)));
      const before = cpuUs([world.redisPid]);
      await each(refs, (key) => admit(store, key));
      samples.push((cpuUs([world.redisPid]) - before) / FEW);
    }
    progress(`  ${count} keys: ${samples.map(short).join(", ")} us`);
    return samples;
  } finally {
    await close();
  }
}

/** Median cost of an admission into a window that is full but for the entry that leaves at that moment. */
async function byLimit(
  { world, progress }: Context,
  { limit, keys, steps }: (typeof WINDOWS)[number],
): Promise<number> {
  await emptyStore(world);
  const issued = await issueKeys(OUR_TREE, world.redis, keys, { ...GENEROUS, rate_limit: limit });
  const parts = await partitions(world);
  const refs = issued.map(({ keyId, accountId }) => keyRef(keyId, accountId, partitionOf(accountId, parts)));
  let nowMs = Date.now();
  const { store, close } = await openStore(world.redisUrl, () => nowMs);
  try {
    const stepMs = WINDOW_MS / limit;
    const step = async (): Promise<number> => {
      nowMs += stepMs;
      const open: Generation[] = [];
      const before = cpuUs([world.redisPid]);
      await each<KeyRef>(refs, async (key) => void open.push(await admit(store, key)));
      const used = (cpuUs([world.redisPid]) - before) / keys;
      // Slots are given back, so that only the window is full; its entry stays.
      await each(open, (generation) => store.voidHold(generation, TIERS));
      return used;
    };
    for (let filling = 0; filling < limit; filling++) await step();
    const samples: number[] = [];
    for (let measured = 0; measured < steps; measured++) samples.push(await step());
    progress(`  limit ${limit}: ${short(median(samples))} us`);
    return median(samples);
  } finally {
    await close();
  }
}
