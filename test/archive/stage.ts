import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Redis } from "ioredis";
import { expect } from "vitest";
import { connectArchive, type OpenedArchive } from "../../src/archive/archive-connection.ts";
import { type CopierOptions, createCopier } from "../../src/archive/copier.ts";
import { identifyOrClaim } from "../../src/archive/identity.ts";
import { migrate } from "../../src/archive/migrations.ts";
import { createTables } from "../../src/archive/tables.ts";
import { grantCredits } from "../../src/operations/credits/grants.ts";
import { type IssuedKey, issueKey } from "../../src/operations/keys/issue-key.ts";
import { cliActor } from "../../src/records/actor.ts";
import {
  entryFields,
  isStoredKind,
  LEDGER_PAGE,
  type LedgerEntry,
  readLedger,
} from "../../src/records/ledger-entries.ts";
import { accountNames, archiveNames, keyRef, partitionNames, partitionOf } from "../../src/records/names.ts";
import { type Connection, type ConnectionOptions, createConnection } from "../../src/redis/connection.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import { startRedis } from "../../src/sandbox/redis.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { createMetrics } from "../../src/telemetry/metrics.ts";
import { changeMoney } from "../support/account-money.ts";
import { createDatabase } from "../support/postgres.ts";
import { createStage, onOneServer, type Stage, taskOf, times } from "../support/store.ts";

export const PARTITIONS = 4;

export type ArchiveStage = Awaited<ReturnType<typeof givenArchiveStage>>;
export type TestCopier = Awaited<ReturnType<ArchiveStage["copier"]>>;

/** A store and a database of the test's own, and copiers between them. */
export async function givenArchiveStage(
  options: { confirm?: ConnectionOptions["confirm"]; postgresUrl?: string } = {},
) {
  const dir = await mkdtemp(join(tmpdir(), "tollgate-archive-"));
  const server = await startRedis({ dir, persistent: false });
  const database = await createDatabase(options.postgresUrl);
  const connections: Connection[] = [];
  const archives: OpenedArchive[] = [];

  async function connect(redisUrl = server.url): Promise<Connection> {
    const connection = createConnection({
      redisUrl,
      commandTimeoutMs: 10_000,
      partitions: PARTITIONS,
      allowNoPersistence: true,
      confirm: options.confirm,
      log: createLogger("silent"),
      metrics: createMetrics(),
    });
    connections.push(connection);
    await connection.usable();
    return connection;
  }

  const connection = await connect();
  const { redis } = onOneServer(connection);
  const nodes = oneNode(redis);
  const traffic = createTraffic(nodes, onOneServer(connection));

  return {
    url: database.url,
    database,
    redis,
    nodes,
    connection,
    ...traffic,
    copier: async (given: CopierGiven = {}) => {
      const archive = connectArchive(given.url ?? database.url);
      archives.push(archive);
      return copierOf(await connect(given.redisUrl), archive, given);
    },
    /** Another process takes all partitions: as after the end of a process that has not given them back. */
    async endLeases(): Promise<void> {
      for (const partition of times(PARTITIONS, (at) => at))
        await redis.del(archiveNames(partition).archiver);
    },
    loseLast: (accountId: string, count: number) => loseLast(redis, accountId, count),
    entries: () => ledgerOf(nodes),
    archived: () => archivedEntries(database),
    async stop(): Promise<void> {
      for (const archive of archives) archive.close();
      for (const one of connections) await one.close();
      await server.stop();
      await database.drop().catch(() => undefined);
      await rm(dir, { recursive: true, force: true });
    },
  };
}

interface CopierGiven {
  url?: string;
  /** Of another store than the stage's. */
  redisUrl?: string;
  /** How long entries stay in Redis; nothing leaves without it. */
  keepMs?: number;
  step?: CopierOptions["step"];
  /** Called before and after the archive is asked what it has. */
  beside?: (when: "before" | "after") => Promise<void>;
}

/** A copier as of another gateway. It only works when asked for a round. */
function copierOf(own: Connection, archive: OpenedArchive, { step, keepMs, beside }: CopierGiven) {
  const faults: (Error | undefined)[] = [];
  const lines: string[] = [];
  const { round, stop } = createCopier({
    connection: own,
    async tables() {
      await migrate(archive);
      const tables = createTables(
        (await identifyOrClaim(archive.query, own.known.facts!.id!)).archiveId,
        archive,
      );
      return {
        ...tables,
        async state(partitions) {
          await beside?.("before");
          const states = await tables.state(partitions);
          await beside?.("after");
          return states;
        },
      };
    },
    archiveUsed: (fault) => void faults.push(fault),
    intervalMs: () => 1000,
    metrics: own.metrics,
    log: createLogger("info", { write: (line) => void lines.push(line) }),
    ...(step ? { step } : {}),
    ...(keepMs === undefined ? {} : { keepMs: () => keepMs }),
  });
  return {
    archive,
    lines,
    metrics: own.metrics,
    round,
    /** Rounds until all is copied, which must succeed. */
    async copy(): Promise<void> {
      while (await round());
      expect(faults.at(-1)).toBeUndefined();
    },
    fault: () => faults.at(-1),
    stop,
  };
}

/** Keys, grants and requests of that store. */
function createTraffic(nodes: RedisNodes, connection: Parameters<typeof createStage>[0]) {
  const stages = times(PARTITIONS, (partition) => createStage(connection, { clock: "redis", partition }));
  const partitionOfKey = ({ accountId }: IssuedKey): number => partitionOf(accountId, PARTITIONS);
  const stageOf = (key: IssuedKey): Stage => stages[partitionOfKey(key)]!;
  const refOf = (key: IssuedKey) => keyRef(key.keyId, key.accountId, partitionOfKey(key));

  return {
    givenKey: (accountId?: string) =>
      issueKey(
        nodes,
        { accountId, credits: 1000, limits: { rate_limit: 1000, max_concurrent: 1000 } },
        cliActor(),
      ),
    grant: (key: IssuedKey, reference: string, amount = 5) =>
      grantCredits(nodes, key.accountId, amount, reference, cliActor()),
    /** A request of this key, carried to its end; answers its id. */
    async ended(key: IssuedKey, end: "completed" | "failed" | "refused" | "due" | "bound" = "completed") {
      const stage = stageOf(key);
      const generation = stage.request(refOf(key));
      if (end === "refused" || end === "due") {
        await stage.admit({ ...generation, holdMs: end === "due" ? 0 : generation.holdMs });
        await stage.void(generation, end);
      } else {
        await stage.givenTask(generation);
        if (end !== "bound") await stage.observe(generation, end);
      }
      return { requestId: generation.requestId, partition: generation.key.partition, generation, stage };
    },
    /** A task that ended as too old and was refunded, which may complete late. */
    async expired(key: IssuedKey) {
      const stage = stageOf(key);
      const generation = stage.request(refOf(key));
      await stage.givenTask(generation);
      await stage.observe(generation, "expired");
      const { requestId } = generation;
      const { accountId, keyId: creatorKeyId, partition } = generation.key;
      const task = { taskId: taskOf(generation), requestId, creatorKeyId };
      const data = '{"status":"completed"}';
      return { requestId, partition, reclaim: () => stage.reclaim({ partition, accountId, task, data }) };
    },
  };
}

/** Takes the last entries of a ledger away, as a failover or an old dump does, with what they did to the account. */
async function loseLast(redis: Redis, accountId: string, count: number): Promise<string[]> {
  const partition = partitionOf(accountId, PARTITIONS);
  const { ledger } = partitionNames(partition);
  const lost = await redis.xrevrange(ledger, "+", "-", "COUNT", count);
  await redis.xdel(ledger, ...lost.map(([id]) => id));
  const [last] = await redis.xrevrange(ledger, "+", "-", "COUNT", 1);
  const { balance_after: balance = "0" } = entryFields(last?.[1] ?? []);
  const { account } = accountNames(partition, accountId);
  await changeMoney(redis, account, { balance, last_entry: last?.[0] ?? "" });
  return lost.map(([id]) => id);
}

/** A promise, and what fulfils it. */
export function givenSignal(): { reached: Promise<void>; reach(): void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { reached: promise, reach: () => resolve() };
}

/** Every entry of every ledger. */
async function ledgerOf(nodes: RedisNodes): Promise<LedgerEntry[]> {
  const entries: LedgerEntry[] = [];
  for (let partition = 0; partition < PARTITIONS; partition++) {
    let after = "0-0";
    let page: LedgerEntry[];
    do {
      page = await readLedger(nodes.of(partition), partition, after);
      entries.push(...page);
      after = page.at(-1)?.streamId ?? after;
    } while (page.length === LEDGER_PAGE);
  }
  return entries;
}

/** As above, from the archive. */
async function archivedEntries({
  query,
}: Awaited<ReturnType<typeof createDatabase>>): Promise<LedgerEntry[]> {
  const rows = await query<Record<string, string> & { partition: number; at: Date }>(
    "SELECT * FROM tollgate.ledger_entries ORDER BY partition, id_ms, id_number",
  );
  return rows.map((row) => ({
    partition: row.partition,
    streamId: row.id!,
    accountId: row.account_id!,
    type: row.type!,
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
    kind: isStoredKind(row.kind!) ? row.kind : "",
    details: row.details ?? "",
    previous: row.previous ?? "",
    atMs: row.at.getTime(),
  }));
}
