import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { archiveReason } from "../../src/archive/archive-reasons.ts";
import { detachArchive } from "../../src/archive/archive-record.ts";
import { createArchiveWork } from "../../src/archive/copier.ts";
import { MIGRATION_LOCK, STEPS } from "../../src/archive/migrations.ts";
import { GatewayError } from "../../src/domain/errors.ts";
import { archiveNames, META } from "../../src/records/names.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { runHere as tollgate } from "../support/cli.ts";
import { createDatabase } from "../support/postgres.ts";
import { type PostgresServer, startPostgres } from "../support/postgres-server.ts";
import { times } from "../support/store.ts";
import { until } from "../support/until.ts";
import { type ArchiveStage, givenArchiveStage, PARTITIONS, type TestCopier } from "./stage.ts";

// Faults of PostgreSQL: each has its message, and none loses or doubles an entry.

let postgres: PostgresServer;
beforeAll(async () => {
  postgres = await startPostgres();
});
afterAll(() => postgres?.remove());

const stages: ArchiveStage[] = [];
afterEach(async () => {
  for (const stage of stages.splice(0)) await stage.stop();
});
async function givenStage(options: Parameters<typeof givenArchiveStage>[0] = {}): Promise<ArchiveStage> {
  const stage = await givenArchiveStage({ postgresUrl: postgres.url(), ...options });
  stages.push(stage);
  return stage;
}

/** The reason that a gateway's log and `doctor` give. */
async function reasonOf(copier: TestCopier) {
  await copier.round();
  expect(copier.fault()).toBeInstanceOf(Error);
  return archiveReason(copier.fault());
}

test("PostgreSQL that is killed in the middle of a transaction has each entry once when it is back", async () => {
  const stage = await givenStage();
  const key = await stage.givenKey();
  await (await stage.copier()).copy();
  for (let round = 0; round < 3; round++) {
    await Promise.all(times(600, (at) => stage.grant(key, `order-${round}-${at}`)));
    const { requestId } = await stage.ended(key);
    await stage.endLeases();
    const copier = await stage.copier({ step: (name) => (name === "write" ? postgres.kill() : undefined) });
    await copier.round();
    expect(archiveReason(copier.fault()).advice).not.toBe("");
    await postgres.start();
    await stage.endLeases();
    // Killed while it commits: nobody knows which side of the COMMIT that was.
    const next = await stage.copier();
    const copying = next.round();
    await postgres.kill();
    await copying;
    await postgres.start();
    await stage.endLeases();
    await (await stage.copier()).copy();
    expect(await stage.archived()).toEqual(await stage.entries());
    expect(
      await stage.database.query("SELECT FROM tollgate.request_rows WHERE request_id = $1", [requestId]),
    ).toHaveLength(1);
  }
});

test("a hung PostgreSQL ends nothing but the round", async () => {
  const stage = await givenStage();
  const key = await stage.givenKey();
  const copier = await stage.copier();
  await copier.copy();
  await stage.grant(key, "while it hangs");
  await postgres.suspend();
  const round = copier.round();
  // As a gateway that stops: what is under way fails at once.
  copier.archive.close();
  await round;
  expect(copier.fault()).toBeInstanceOf(Error);
  await postgres.resume();
  await stage.endLeases();
  await (await stage.copier()).copy();
  expect(await stage.archived()).toEqual(await stage.entries());
});

/** Another one means that all accounts, keys and requests of its partition are copied again. */
const generations = (stage: ArchiveStage) =>
  Promise.all(
    times(PARTITIONS, (partition) => stage.redis.hget(archiveNames(partition).archive, "generation")),
  );

test("connections to Redis that break in the middle of a round leave nothing out and nothing twice", async () => {
  const stage = await givenStage();
  const key = await stage.givenKey();
  const copier = await stage.copier();
  await copier.copy();
  await stage.grant(key, "order");
  const before = await generations(stage);
  let isBroken = false;
  const breaking = await stage.copier({
    step: async (name) => {
      if (name !== "note" || isBroken) return;
      isBroken = true;
      await stage.redis.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
    },
  });
  await stage.endLeases();
  await breaking.round();
  expect(isBroken).toBe(true);
  await until(() => stage.connection.isUsable(), "the store to be in use again");
  await breaking.copy();
  expect(await stage.archived()).toEqual(await stage.entries());
  expect(await generations(stage)).toEqual(before);
  expect(await stage.database.query("SELECT FROM tollgate.ledger_rows")).toHaveLength(2);
});

test("a batch that was written and not noted is noted later, and nothing is copied again as a whole", async () => {
  const stage = await givenStage();
  const keys = [
    await stage.givenKey("acme"),
    await stage.givenKey("globex"),
    await stage.givenKey("initech"),
  ];
  const first = await stage.copier();
  await first.copy();
  await first.stop();
  for (const [at, key] of keys.entries()) await stage.grant(key, `order-${at}`);
  const before = await generations(stage);
  let failures = 0;
  const copier = await stage.copier({
    step(name) {
      if (name === "note" && failures++ === 0) throw new GatewayError("store_unavailable", "away");
    },
  });
  await copier.round();
  expect(failures).toBe(1);
  await copier.copy();
  expect(await stage.archived()).toEqual(await stage.entries());
  expect(await generations(stage)).toEqual(before);
});

test("a user that may only insert and select is enough, and one without these rights is told so", async () => {
  const stage = await givenStage();
  const role = `copier_${stage.database.name}`;
  const key = await stage.givenKey();
  await stage.database.query(`CREATE ROLE ${role} LOGIN`);
  const copier = await stage.copier({ url: stage.database.as(role) });
  expect((await reasonOf(copier)).advice).toContain("tollgate archive migrate");
  expect(await tollgate(["archive", "migrate", "--json"], { ARCHIVE_URL: stage.url })).toMatchObject({
    code: 0,
  });
  expect((await reasonOf(copier)).why).toContain("too few rights");
  await stage.database.query(`GRANT USAGE ON SCHEMA tollgate TO ${role}`);
  await stage.database.query(`GRANT SELECT ON ALL TABLES IN SCHEMA tollgate TO ${role}`);
  expect((await reasonOf(copier)).why).toContain("too few rights");
  await stage.database.query(`GRANT INSERT ON ALL TABLES IN SCHEMA tollgate TO ${role}`);
  await copier.copy();
  await stage.grant(key, "order-1");
  await copier.copy();
  expect(await stage.archived()).toHaveLength(2);
  expect(await stage.database.query("SELECT FROM tollgate.batches")).toHaveLength(1);
});

test("the database of another store is refused, and nothing is written to it", async () => {
  const [one, other] = [await givenStage(), await givenStage()];
  await one.givenKey();
  await other.givenKey();
  await (await one.copier()).copy();
  const copier = await other.copier({ url: one.url });
  expect((await reasonOf(copier)).why).toContain(await other.redis.hget(META, "id"));
  expect(await one.archived()).toEqual(await one.entries());
});

test("a second archive is refused until the first is given up", async () => {
  const stage = await givenStage();
  await stage.givenKey();
  await (await stage.copier()).copy();
  await stage.endLeases();
  const second = await createDatabase(postgres.url());
  const copier = await stage.copier({ url: second.url });
  expect((await reasonOf(copier)).advice).toContain("tollgate archive detach");
  expect(await detachArchive(stage.nodes)).toBe(4);
  await copier.copy();
  expect(await second.query("SELECT FROM tollgate.ledger_entries")).toHaveLength(1);
  expect(await second.query("SELECT FROM tollgate.api_keys")).toHaveLength(1);
});

test("a password that is asked for and not there is called that", () => {
  const error = new Error("SASL: SCRAM-SERVER-FIRST-MESSAGE: client password must be a string");
  expect(archiveReason(error).advice).toBe("set the password in ARCHIVE_URL");
});

test("a pooler that refuses the settings of a connection is called that", () => {
  const refused = Object.assign(new Error("unsupported startup parameter: statement_timeout"), {
    code: "08P01",
  });
  expect(archiveReason(refused)).toMatchObject({
    why: "a pooler before it refuses the connection (unsupported startup parameter: statement_timeout)",
    advice: expect.stringContaining("set up the pooler as in docs/archive.md"),
  });
});

test("a schema of a later version is refused", async () => {
  const stage = await givenStage();
  const copier = await stage.copier();
  await copier.copy();
  await stage.database.query("INSERT INTO tollgate.migrations (step) VALUES ('0999-later')");
  await stage.givenKey();
  const next = await stage.copier();
  await stage.endLeases();
  expect((await reasonOf(next)).why).toContain("later version of Tollgate (0999-later)");
});

test("several gateways that start at a time make one schema", async () => {
  const stage = await givenStage();
  const copiers = await Promise.all(times(4, () => stage.copier()));
  await Promise.all(copiers.map(({ copy }) => copy()));
  const steps = await stage.database.query("SELECT step FROM tollgate.migrations ORDER BY step");
  expect(steps).toEqual(STEPS.map((step) => ({ step })));
});

// Guarantee: a step that rewrites a large table is not given up half way, and begun again for ever.
test("a migration may take longer than any statement of the copier", async () => {
  const stage = await givenStage();
  await stage.givenKey();
  const lines: string[] = [];
  // A statement is given up after its time and two seconds more.
  const held = stage.database.query("SELECT pg_advisory_xact_lock($1), pg_sleep(4.5)", [MIGRATION_LOCK]);
  await until(
    async () => (await stage.database.query("SELECT FROM pg_locks WHERE locktype = 'advisory'")).length > 0,
    "the lock to be held",
  );
  const work = createArchiveWork({
    url: stage.url,
    connection: stage.connection,
    intervalMs: () => 10,
    keepMs: () => 86_400_000,
    // Enough for each statement of the copier on a busy machine.
    statementMs: 2000,
    metrics: stage.connection.metrics,
    log: createLogger("info", { write: (line) => void lines.push(line) }),
  });
  work.start();
  await until(() => lines.some((line) => line.includes("the archive is in use")), "the archive to be used");
  await work.stop();
  await held;
  expect(lines.filter((line) => line.includes("cannot be used"))).toEqual([]);
  expect(lines.filter((line) => line.includes("has got a step"))).toHaveLength(STEPS.length);
});

test.each([
  [
    "no such database",
    (url: URL) => Object.assign(url, { pathname: "/nobody_has_this" }),
    "there is no such database",
  ],
  ["nobody listens", (url: URL) => Object.assign(url, { port: "1" }), "nobody listens there"],
  ["no such host", (url: URL) => Object.assign(url, { hostname: "postgres.invalid" }), "host name"],
  ["no such user", (url: URL) => Object.assign(url, { username: "nobody_has_this" }), "it refuses the user"],
  [
    "a certificate that is not there",
    (url: URL) => Object.assign(url, { search: "?sslmode=verify-full&sslrootcert=/not/there.pem" }),
    "a file that ARCHIVE_URL names is not there",
  ],
  ["TLS where there is none", (url: URL) => Object.assign(url, { search: "?sslmode=verify-full" }), "SSL"],
])("%s: the log says so, and never the password", async (_, change, why) => {
  const stage = await givenStage();
  await stage.givenKey();
  const url = new URL(stage.url);
  url.password = "hunter2";
  const reason = await reasonOf(await stage.copier({ url: change(url).href }));
  expect(reason.why).toContain(why);
  expect(JSON.stringify(reason)).not.toContain("hunter2");
});

// Guarantee: nothing is in the archive that a failover may lose.
test("without replicas that have it, nothing is copied", async () => {
  const stage = await givenStage({ confirm: { replicas: 1, timeoutMs: 20 } });
  await stage.givenKey();
  const copier = await stage.copier();
  await copier.round();
  expect(copier.fault()).toBeUndefined();
  expect(await stage.archived()).toEqual([]);
  expect((await copier.metrics.archiveLag.get()).values[0]!.value).toBeGreaterThan(0);
});

test("doctor says what is wrong with the archive", async () => {
  const stage = await givenStage();
  const found = async (url: string) => {
    const redisUrl = `redis://127.0.0.1:${stage.redis.options.port}`;
    const { stdout } = await tollgate(["doctor", "--json"], { ARCHIVE_URL: url, REDIS_URL: redisUrl });
    return JSON.parse(stdout).checks.filter(({ name }: { name: string }) => name === "archive");
  };
  expect(await found(stage.url)).toMatchObject([
    { status: "warn", message: expect.stringContaining("0001-archive") },
  ]);
  await (await stage.copier()).copy();
  expect(await found(stage.url)).toMatchObject([
    { status: "ok", message: expect.stringContaining("is this store's") },
  ]);
  expect(await found(`${stage.url}?options=-c%20default_transaction_read_only%3Don`)).toMatchObject([
    {
      status: "fail",
      message: expect.stringContaining("takes no writes"),
      advice: "name the primary in ARCHIVE_URL",
    },
  ]);
  expect(await found(stage.url.replace(/:\d+\//, ":1/"))).toMatchObject([{ status: "fail" }]);
});
