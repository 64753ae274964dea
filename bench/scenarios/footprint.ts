import type { KeyRef } from "../../src/records/names.ts";
import { keyRef, partitionOf } from "../../src/records/names.ts";
import type { Generation } from "../../src/scripts/holds.ts";
import { emptyStore } from "../keys.ts";
import { partitions } from "../recorder.ts";
import type { Context, Outcome, Scenario } from "../scenario.ts";
import { judge, short } from "../targets.ts";
import { type OpenStore, OUR_TREE, openStore } from "../tree.ts";
import { admit, each, newTask, newTaskId, TIERS } from "./drive.ts";

const ACCOUNTS = 2000;
/** Twenty in the window: nine charged, of which three still run, and eleven that the upstream refused. */
const RUNNING = 3;
const ENDED = 6;
const REFUSED = 11;

export const footprint: Scenario = {
  title: "Redis memory per account",
  quick: false,
  needs: [],
  targets: ["footprint"],
  async run({ world }): Promise<Outcome> {
    await emptyStore(world);
    await OUR_TREE.issueKey(world.redis);
    const open = await openStore(world.redisUrl);
    try {
      const before = await usedBytes(world);
      await each(Array.from({ length: ACCOUNTS }), () => live(world, open));
      await collectAll(open);
      const bytes = ((await usedBytes(world)) - before) / ACCOUNTS;
      const kinds = await byKind(world);
      return {
        method: `${ACCOUNTS} accounts, each with one key, twenty generations in the window, ten transactions (one recharge, nine charges) and three tasks that run; all made by the real scripts. Ended requests are past their retention. The figure is the growth of used_memory, so it holds the index of keys and the ledger too.`,
        tables: [
          {
            columns: ["", "bytes per account"],
            rows: [["all", short(bytes)], ...kinds.map(([kind, each]) => [kind, short(each)])],
          },
        ],
        verdicts: [judge("footprint", bytes / 1024)],
        disturbed: [],
        figures: { bytes, kinds: Object.fromEntries(kinds) },
      };
    } finally {
      await open.close();
    }
  },
};

/** The life of one account up to the state that is weighed. @throws when it is not that state */
async function live(world: Context["world"], { store }: OpenStore): Promise<void> {
  const { keyId, accountId } = await OUR_TREE.issueKey(world.redis, {
    credits: 100_000,
    limits: { max_concurrent: 20 },
  });
  const key = keyRef(keyId, accountId, partitionOf(accountId, await partitions(world)));
  for (let n = 0; n < REFUSED; n++) await store.voidHold(await admit(store, key), TIERS);
  for (let n = 0; n < ENDED + RUNNING; n++) await run(store, await admit(store, key), key, n < ENDED);
  const { state } = await store.inspect(key, TIERS);
  const account = await store.credits(key, TIERS);
  const transactions = "recent" in account ? account.recent.length : 0;
  if (state.remaining !== 0 || state.active !== RUNNING || transactions !== 1 + ENDED + RUNNING) {
    throw new Error(`an account came out wrong: ${JSON.stringify({ state, transactions })}`);
  }
}

/** Binds a generation to a task, and sees the task completed if it is to end. */
async function run(
  store: OpenStore["store"],
  generation: Generation,
  key: KeyRef,
  ends: boolean,
): Promise<void> {
  const taskId = newTaskId();
  await store.bind(generation, newTask(taskId, 3_600_000));
  const task = { taskId, requestId: generation.requestId, creatorKeyId: key.keyId };
  const status = ends ? ("completed" as const) : ("processing" as const);
  const data = JSON.stringify({ task_id: taskId, status, created_at: "2026-01-01T00:00:00Z" });
  const subject = { partition: key.partition, accountId: key.accountId, task };
  await store.observe(
    subject,
    { status, data },
    { refundFailed: true, maxAgeMs: 7_200_000, pollMs: 3_600_000, tiers: TIERS },
  );
}

/** As after the retention: requests that have ended are counted, and forgotten. */
async function collectAll({ sweeps, rollUp }: OpenStore): Promise<void> {
  for (let partition = 0; partition < sweeps.partitions(); partition++) {
    await rollUp(partition);
    while ((await sweeps.collect(partition, 0, 1000)).collected > 0);
  }
}

async function usedBytes({ redis }: Context["world"]): Promise<number> {
  return Number(/^used_memory:(\d+)/m.exec(await redis.info("memory"))?.[1]);
}

/** Memory by the second part of the names, per account, greatest first; without what the key space itself takes. */
async function byKind({ redis }: Context["world"]): Promise<[string, number][]> {
  const sums = new Map<string, number>();
  for await (const names of redis.scanStream({ count: 1000 }) as AsyncIterable<string[]>) {
    const pipe = redis.pipeline();
    for (const name of names) pipe.memory("USAGE", name, "SAMPLES", 0);
    for (const [at, [, bytes]] of ((await pipe.exec()) ?? []).entries()) {
      const kind = names[at]!.replace(/^tg:(\{p\d+\}:)?/, "").split(":")[0]!;
      sums.set(kind, (sums.get(kind) ?? 0) + Number(bytes));
    }
  }
  return [...sums]
    .map(([kind, sum]): [string, number] => [kind, sum / ACCOUNTS])
    .sort(([, a], [, b]) => b - a);
}
