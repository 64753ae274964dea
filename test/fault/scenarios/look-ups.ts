import { execFile } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import pg from "pg";
import { connectArchive } from "../../../src/archive/archive-connection.ts";
import { identifyOrClaim } from "../../../src/archive/identity.ts";
import { migrate } from "../../../src/archive/migrations.ts";
import { trimLedger } from "../../../src/archive/trimming.ts";
import { LEDGER_START, readLedger } from "../../../src/records/ledger-entries.ts";
import {
  accountNames,
  claimName,
  partitionNames,
  requestName,
  taskName,
} from "../../../src/records/names.ts";
import { scriptsOf } from "../../../src/redis/script-runner.ts";
import { oneNode } from "../../../src/redis/store-facts.ts";
import { addMoney } from "../../support/account-money.ts";
import { childEnv } from "../../support/child-env.ts";
import { startPostgres } from "../../support/postgres-server.ts";
import { type Customer, generate } from "../client.ts";
import { programOf } from "../gateways.ts";
import type { ByHand, ClientEvent, History } from "../history.ts";
import { countOpen } from "../snapshot.ts";
import { createWorld, eventually, type RunOptions, type World } from "../world.ts";
import { readWhole, withWholeLedger } from "./archive.ts";
import type { Scenario } from "./scenario.ts";

interface LookUpsSize {
  /** Only what is decided with another store's archive, an older Redis or an older PostgreSQL. */
  only?: "other" | "redis" | "postgres" | undefined;
}

const WAIT_MAX_MS = 30_000;
/** The only one. */
const PARTITION = 0;
const AMOUNT = 7;
const run = promisify(execFile);

/**
 * Operators decide about money that only the archive knows of: with another store's archive, with a Redis that came back
 * older, and with a backup of PostgreSQL that lacks what has left Redis. Each time they are told that this is unavailable.
 */
export const lookUps: Scenario<LookUpsSize> = {
  name: "look-ups",
  title: () =>
    "what only the archive knows is adjusted and refunded: with another store's archive, an older Redis, an older PostgreSQL",
  full: {},
  short: {},
  run: runLookUps,
};

async function runLookUps(options: RunOptions, { only }: LookUpsSize): Promise<History> {
  const postgres = await startPostgres();
  const world = await createWorld(options, 1, { archiveUrl: postgres.url(), partitions: 1 });
  try {
    const customer = await world.givenCustomer();
    await decide(world, customer, { archiveUrl: postgres.url(), only });
    await world.startIn(0);
    if (!(await eventually(WAIT_MAX_MS, () => isArchived(world, postgres.url()))))
      world.note("not reached", "the archive has caught up");
    const history = await world.finish();
    await world.stopGateways();
    const facts = await readWhole(world.redis, postgres.url());
    return { ...history, archive: facts, store: withWholeLedger(history.store, facts) };
  } finally {
    await world.stop();
    await postgres.remove();
  }
}

async function decide(
  world: World,
  customer: Customer,
  { archiveUrl, only }: LookUpsSize & { archiveUrl: string },
): Promise<void> {
  const isAsked = (part: LookUpsSize["only"]): boolean => only === undefined || only === part;
  const failed = await endedTask(world, customer, true);
  const completed = await endedTask(world, customer, false);
  const adjust = operatorOf(world, {
    kind: "adjust",
    accountId: customer.accountId,
    taskId: "",
    amount: AMOUNT,
  });
  const refundOf = ({ taskId }: ClientEvent) =>
    operatorOf(world, { kind: "refund", accountId: customer.accountId, taskId, amount: 0 });
  await adjust("adjusted", archiveUrl, "ticket");
  await endedTask(world, customer, false);
  const newest = await endedTask(world, customer, false);
  if (!(await eventually(WAIT_MAX_MS, () => isTrimmed(world, archiveUrl))))
    world.note("not reached", "all but the newest entry has left Redis");
  // Without copiers, whatever is wrong stays.
  world.kill(0, "before operators look things up");
  await forgetReferences(world);
  for (const event of [failed, completed]) world.forgotten.push(...(await forgetTask(world, event)));

  if (isAsked("other")) {
    await adjust("unavailable", await otherStores(archiveUrl), "ticket");
    await adjust("duplicate", archiveUrl, "ticket");
  }
  if (isAsked("redis")) {
    const putBack = await loseCharge(world, customer, newest);
    await refundOf(newest)("unavailable", archiveUrl, "lost");
    await putBack();
  }
  if (isAsked("postgres")) {
    const putBack = await loseRefund(archiveUrl, failed);
    await refundOf(failed)("unavailable", archiveUrl, "gap");
    await putBack();
  }
  if (only !== undefined) return;
  await refundOf(completed)("refunded", archiveUrl, "own");
  await refundOf(completed)("conflict", archiveUrl, "again");
}

/** A task of which nothing is open any more. */
async function endedTask(world: World, customer: Customer, fails: boolean): Promise<ClientEvent> {
  const event = await generate(world.gateways[0]!, customer, { lifeMs: 1, fails });
  world.client.push(event);
  const isOver = async () => (await countOpen(oneNode(world.redis), world.accounts)) === 0;
  if (!(await eventually(WAIT_MAX_MS, isOver))) world.note("not reached", "a task has ended");
  return event;
}

const ledgerOf = ({ redis }: World) => readLedger(redis, PARTITION, LEDGER_START);

async function isArchived(world: World, archiveUrl: string): Promise<boolean> {
  const { entries, inRedis } = await readWhole(world.redis, archiveUrl);
  const archived = new Set(entries.map(({ streamId }) => streamId));
  return inRedis.every(({ streamId }) => archived.has(streamId));
}

const isTrimmed = async (world: World, archiveUrl: string): Promise<boolean> =>
  (await ledgerOf(world)).length === 1 && (await isArchived(world, archiveUrl));

/** As 400 days later. */
async function forgetReferences(world: World): Promise<void> {
  const [archivedTo] = await ledgerOf(world);
  const { run: runScript } = scriptsOf(world.redis);
  await trimLedger(runScript, {
    partition: PARTITION,
    archivedTo: archivedTo!,
    keepMs: 0,
    keepReferencesMs: 0,
  });
}

/** As after the retention. @returns its record */
async function forgetTask({ redis }: World, { requestId, taskId }: ClientEvent) {
  const name = requestName(PARTITION, requestId);
  const value = await redis.get(name);
  await redis.del(name, taskName(taskId, PARTITION), claimName(taskId));
  await redis.zrem(partitionNames(PARTITION).done, requestId);
  return [{ name, value }];
}

/** Redis comes back older: it lacks its newest charge. @returns puts back what it had */
async function loseCharge(
  { redis }: World,
  { accountId }: Customer,
  event: ClientEvent,
): Promise<() => Promise<void>> {
  const names = await redis.keys("tg:*");
  const dumps = await Promise.all(
    names.map(async (name) => ({ name, dump: await redis.dumpBuffer(name), ttlMs: await redis.pttl(name) })),
  );
  await redis.xtrim(partitionNames(PARTITION).ledger, "MAXLEN", 0);
  await addMoney(redis, accountNames(PARTITION, accountId).account, "balance", 10);
  const { requestId, taskId } = event;
  await redis.del(requestName(PARTITION, requestId), taskName(taskId, PARTITION), claimName(taskId));
  return async () => {
    await redis.del(...(await redis.keys("tg:*")));
    for (const { name, dump, ttlMs } of dumps) if (dump) await redis.restore(name, Math.max(ttlMs, 0), dump);
  };
}

/** A backup is restored that lacks a refund and all that came after it. @returns puts back the rows */
async function loseRefund(archiveUrl: string, { requestId }: ClientEvent): Promise<() => Promise<void>> {
  const columns = `partition, id, fork, account_id, type, amount, balance_after, endpoint, reason, task_id, request_id, key_id,
    reference, previous, at, copied_at, by, note`;
  const refund = `SELECT id_ms, id_number FROM tollgate.ledger_rows WHERE request_id = '${requestId}' AND type = 'recharge'`;
  await inArchive(
    archiveUrl,
    `CREATE TABLE backup AS SELECT ${columns} FROM tollgate.ledger_rows WHERE (id_ms, id_number) >= (${refund});
     DELETE FROM tollgate.ledger_rows WHERE (partition, id, fork) IN (SELECT partition, id, fork FROM backup)`,
  );
  return () =>
    inArchive(
      archiveUrl,
      `INSERT INTO tollgate.ledger_rows (${columns}) SELECT * FROM backup; DROP TABLE backup`,
    );
}

async function inArchive(url: string, text: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(text).finally(() => client.end());
}

/** The archive of a store that nobody here knows. @returns its URL */
async function otherStores(archiveUrl: string): Promise<string> {
  await inArchive(archiveUrl, "CREATE DATABASE other");
  const url = new URL(archiveUrl);
  url.pathname = "/other";
  const archive = connectArchive(url.href);
  try {
    await migrate(archive);
    await identifyOrClaim(archive.query, "another-store");
  } finally {
    archive.close();
  }
  return url.href;
}

/** An operator on the command line of the tree under test, with the expected answer of each command. */
function operatorOf(world: World, what: Pick<ByHand, "kind" | "accountId" | "taskId" | "amount">) {
  const done: ByHand = { ...what, references: [], outcomes: [], needsArchive: true };
  return async (expected: string, archiveUrl: string, ticket: string): Promise<void> => {
    if (done.references.length === 0) world.byHand.push(done);
    const reference = `${what.kind}-${what.taskId}-${ticket}`;
    const outcome = await commandLine(world, archiveUrl, [
      ...(what.kind === "adjust"
        ? ["credits", "adjust", what.accountId, String(what.amount)]
        : ["tasks", "refund", what.taskId]),
      ...["--reason", "the campaign", "--reference", reference, "--json"],
    ]);
    done.references.push(reference);
    done.outcomes.push(outcome);
    if (outcome !== expected) world.note("not reached", `${reference} is ${expected}: ${outcome}`);
  };
}

async function commandLine(world: World, archiveUrl: string, words: readonly string[]): Promise<string> {
  const { root, folder } = world.options;
  // Away from the gateways' settings and journal: those know of losses by themselves.
  const cwd = join(folder, "operator");
  mkdirSync(cwd, { recursive: true });
  const env = {
    ...childEnv(),
    REDIS_URL: `redis://127.0.0.1:${world.server.port}`,
    ARCHIVE_URL: archiveUrl,
  };
  return run(process.execPath, [programOf(root, "cli"), ...words], { cwd, env }).then(
    ({ stdout }) => (JSON.parse(stdout) as { outcome: string }).outcome,
    ({ stderr = "" }: { stderr?: string }) =>
      stderr.includes("nothing is changed: ")
        ? "unavailable"
        : stderr.includes("refunded before")
          ? "conflict"
          : stderr,
  );
}
