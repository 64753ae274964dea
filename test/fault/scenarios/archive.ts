import { setTimeout as pause } from "node:timers/promises";
import type { Redis } from "ioredis";
import pg from "pg";
import { isStoredKind, type LedgerEntry, readLedger } from "../../../src/records/ledger-entries.ts";
import { META, partitionNames } from "../../../src/records/names.ts";
import { oneNode } from "../../../src/redis/store-facts.ts";
import { type PostgresServer, startPostgres } from "../../support/postgres-server.ts";
import { endedRequests, entryFields, entryName } from "../criteria-archive.ts";
import type { ArchiveFacts, History, StoreEntry } from "../history.ts";
import type { Random } from "../random.ts";
import { verifyStore } from "../snapshot.ts";
import { createWorld, eventually, type RunOptions, type World } from "../world.ts";
import type { Scenario } from "./scenario.ts";
import { type Errand, givenCrowd, planErrands, runErrand } from "./traffic.ts";

interface ArchiveSize {
  /** SIGKILLs of gateways, PostgreSQL and Redis, and hangs of PostgreSQL. */
  hits: number;
  /** Requests at a time. */
  width: number;
  /** Only hits of PostgreSQL. */
  only?: "postgres" | undefined;
}

const GATEWAYS = 3;
const CAUGHT_UP_MAX_MS = 60_000;
const READY_MAX_MS = 30_000;
/** Planned at a time. */
const ERRANDS = 2000;

/** Gateways, PostgreSQL and Redis are killed while the ledger is copied and trimmed. The two together are judged as one ledger. */
export const archive: Scenario<ArchiveSize> = {
  name: "archive",
  title: ({ hits }) =>
    `the ledger goes to PostgreSQL and leaves Redis at once, under load: ${hits} SIGKILLs of gateways, PostgreSQL and Redis, ` +
    "and hangs of PostgreSQL",
  full: { hits: 160, width: 16 },
  short: { hits: 7, width: 8 },
  run: runArchive,
};

async function runArchive(options: RunOptions, { hits, width, only }: ArchiveSize): Promise<History> {
  const postgres = await startPostgres();
  const world = await createWorld(options, GATEWAYS, {
    persistent: true,
    archiveUrl: postgres.url(),
  });
  try {
    const customers = await givenCrowd(world);
    let isOver = false;
    const errands = unendingErrands(world.random, customers.length);
    const worker = async (): Promise<void> => {
      while (!isOver) {
        const { status } = await runErrand(world, customers, errands.next().value);
        // Most of a run is not to be spent on refusals while Redis is away.
        if (status === 0 || status === 503) await pause(50);
      }
    };
    const workers = Array.from({ length: width }, worker);
    try {
      await strike(world, postgres, { hits, only });
    } finally {
      isOver = true;
    }
    await Promise.all(workers);
    const history = await world.finish();
    const isComplete = await eventually(CAUGHT_UP_MAX_MS, () =>
      hasCaughtUp(world.redis, postgres.url(), history),
    );
    if (!isComplete) {
      const fault = {
        kind: "not reached",
        phase: "the archive has caught up",
        gateway: "",
        atMs: Date.now(),
      };
      history.faults.push(fault);
    }
    await world.stopGateways();
    const facts = await readWhole(world.redis, postgres.url());
    // Once more, after the last trims: before them the checkpoints say little.
    const meta = {
      ...history.meta,
      verified: [...history.meta.verified, ...(await verifyStore(oneNode(world.redis)))],
    };
    return { ...history, meta, archive: facts, store: withWholeLedger(history.store, facts) };
  } finally {
    await world.stop();
    await postgres.remove();
  }
}

/** Plan after plan, each with Idempotency-Keys of its own. */
function* unendingErrands(random: Random, customers: number): Generator<Errand, never> {
  for (let plan = 0; ; plan++) {
    for (const errand of planErrands(random, ERRANDS, customers, GATEWAYS)) {
      const { idempotencyKey } = errand;
      yield { ...errand, idempotencyKey: idempotencyKey && `${idempotencyKey}-${plan}` };
    }
  }
}

/** One hit after the other, with some time in between for copying and trimming. */
async function strike(
  world: World,
  postgres: PostgresServer,
  { hits, only }: Pick<ArchiveSize, "hits" | "only">,
): Promise<void> {
  const { random, options } = world;
  for (let at = 0; at < hits; at++) {
    await pause(random.int(50, 400));
    await hit(world, postgres, only ? random.int(4, 7) : random.int(0, 9));
    if (at % 20 === 19) options.progress(`${at + 1} of ${hits} hits`);
  }
}

/** @param which 0 to 3: a gateway; 4 and 5: PostgreSQL is killed, 6 and 7: hangs; 8 and 9: Redis */
async function hit(world: World, postgres: PostgresServer, which: number): Promise<void> {
  const { random } = world;
  const downMs = random.int(0, 400);
  if (which < 4) {
    const slot = random.int(0, GATEWAYS - 1);
    world.kill(slot, "while it may be copying");
    await world.startIn(slot);
  } else if (which < 6) {
    world.note("PostgreSQL is killed");
    await postgres.kill();
    await pause(downMs);
    await postgres.start();
  } else if (which < 8) {
    world.note("PostgreSQL hangs");
    await postgres.suspend();
    await pause(4 * downMs);
    await postgres.resume();
  } else {
    world.note("Redis is killed");
    await world.server.restart(downMs);
    const answers = () =>
      world.redis.ping().then(
        () => true,
        () => false,
      );
    if (!(await eventually(READY_MAX_MS, answers))) world.note("not reached", "Redis answers again");
  }
}

/** https://www.postgresql.org/docs/current/errcodes-appendix.html */
const UNDEFINED_TABLE = "42P01";

/** Everything of every partition, as it is in Redis now. */
async function readStreams(redis: Redis): Promise<LedgerEntry[]> {
  const entries: LedgerEntry[] = [];
  const partitions = Number(await redis.hget(META, "partitions"));
  for (let partition = 0; partition < partitions; partition++) {
    let after = "0-0";
    for (;;) {
      const page = await readLedger(redis, partition, after);
      const last = page.at(-1);
      if (!last) break;
      entries.push(...page);
      after = last.streamId;
    }
  }
  return entries;
}

async function hasCaughtUp(redis: Redis, url: string, history: History): Promise<boolean> {
  // Where PostgreSQL was always killed in time, its tables are not made yet.
  const facts = await readArchive(url).catch((error: { code?: string }) => {
    if (error.code !== UNDEFINED_TABLE) throw error;
  });
  if (!facts) return false;
  const archived = new Set(facts.entries.map(entryName));
  const ended = endedRequests(history.store);
  return (
    (await readStreams(redis)).every((entry) => archived.has(entryName(entry))) &&
    ended.every(({ id, status }) => facts.requests[id] === status)
  );
}

/** Redis and the archive. */
export const readWhole = async (redis: Redis, url: string): Promise<ArchiveFacts> => ({
  ...(await readArchive(url)),
  inRedis: await readStreams(redis),
});

async function readArchive(url: string): Promise<Omit<ArchiveFacts, "inRedis">> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    const rows = async (text: string): Promise<Record<string, string | null>[]> =>
      (await client.query(text)).rows;
    const entries = await rows(
      `SELECT partition, id, account_id, type, amount, balance_after, endpoint, reason, task_id, request_id, key_id, reference,
        previous, floor(extract(epoch FROM at) * 1000)::text AS at_ms
      FROM tollgate.ledger_entries ORDER BY partition, id_ms, id_number`,
    );
    const [counted] = await rows("SELECT count(*) AS rows FROM tollgate.ledger_rows");
    const balances = await rows("SELECT account_id, balance FROM tollgate.balances");
    const requests = await rows("SELECT request_id, status FROM tollgate.requests");
    return {
      entries: entries.map(entryOf),
      hidden: Number(counted?.rows) - entries.length,
      balances: Object.fromEntries(balances.map((row) => [row.account_id, Number(row.balance)])),
      requests: Object.fromEntries(requests.map((row) => [row.request_id, row.status])),
    };
  } finally {
    await client.end();
  }
}

const entryOf = (row: Record<string, string | null>): LedgerEntry => ({
  partition: Number(row.partition),
  streamId: row.id ?? "",
  accountId: row.account_id ?? "",
  type: row.type ?? "",
  amount: Number(row.amount),
  balanceAfter: Number(row.balance_after),
  endpoint: row.endpoint ?? "",
  reason: row.reason ?? "",
  taskId: row.task_id ?? "",
  requestId: row.request_id ?? "",
  keyId: row.key_id ?? "",
  reference: row.reference ?? "",
  by: row.by ?? "",
  note: row.note ?? "",
  kind: isStoredKind(row.kind ?? "") ? row.kind! : "",
  details: row.details ?? "",
  previous: row.previous ?? "",
  atMs: Number(row.at_ms),
});

/** The store's records with the ledger that Redis and the archive have together. */
export function withWholeLedger(
  store: readonly StoreEntry[],
  { entries, inRedis }: ArchiveFacts,
): StoreEntry[] {
  const whole = new Map([...entries, ...inRedis].map((entry) => [entryName(entry), entry]));
  const partitions = Map.groupBy(whole.values(), ({ partition }) => partition);
  const streams = [...partitions].map(([partition, all]): StoreEntry => {
    const ordered = all.sort((one, other) => compareIds(one.streamId, other.streamId));
    const value = ordered.map((entry) => [entry.streamId, entryFields(entry)]);
    return { name: partitionNames(partition).ledger, value };
  });
  return [...store.filter(({ name }) => !/^tg:\{p\d+\}:ledger$/.test(name)), ...streams];
}

function compareIds(one: string, other: string): number {
  const [ms = 0, number = 0] = one.split("-").map(Number);
  const [otherMs = 0, otherNumber = 0] = other.split("-").map(Number);
  return ms - otherMs || number - otherNumber;
}
