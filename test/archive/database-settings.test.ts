import { expect, inject, test } from "vitest";
import { connectArchive } from "../../src/archive/archive-connection.ts";
import { MIGRATION_LOCK, migrate, STEPS } from "../../src/archive/migrations.ts";
import { openArchiveReads } from "../../src/archive/reads.ts";
import { verifyArchive } from "../../src/archive/verify-archive.ts";
import { allUsage } from "../../src/ledger/all-usage.ts";
import { accountStatements } from "../../src/ledger/statements.ts";
import { createDatabase, query } from "../support/postgres.ts";
import { until } from "../support/until.ts";
import { givenExample } from "./example.ts";
import { givenArchiveStage } from "./stage.ts";

// Guarantee: how a database writes dates for people changes no figure.
test("a database that writes dates in another style and zone has the same usage, statements and check", async () => {
  const stage = await givenArchiveStage();
  const { name } = stage.database;
  // Options of an address replace those of the client, and a pooler drops them.
  const url = `${stage.url}?options=-c%20work_mem%3D4MB`;
  const reads = openArchiveReads(url);
  try {
    await stage.database.query(`alter database ${name} set datestyle = 'German'`);
    await stage.database.query(`alter database ${name} set timezone = 'Asia/Kolkata'`);
    await givenExample(stage);
    const copier = await stage.copier({ url });
    await copier.copy();
    const archive = reads.of(stage.nodes);
    const days = await allUsage(stage.nodes, { by: ["day"], to: "2025-09-30", limit: 100 }, archive);
    expect(days.rows.map(({ day, credits }) => [day, credits])).toEqual([
      ["2025-09-12", 10],
      ["2025-09-13", 10],
      ["2025-09-30", 40],
    ]);
    const [acme] = await accountStatements(stage.nodes, ["acme"], "2025-10", archive);
    expect(acme).toMatchObject({ source: "archive", statement: { opening: 480 } });
    expect((await verifyArchive(stage.nodes, copier.archive.query)).violations).toEqual([]);
  } finally {
    await stage.database.query(`alter database ${name} reset all`);
    reads.close();
    await stage.stop();
  }
});

// Guarantee: no letter of a customer's text stops the archive months later.
test("a database that lacks letters of customers' texts is refused before anything is copied", async () => {
  await query("create database latin encoding 'LATIN1' lc_collate 'C' lc_ctype 'C' template template0");
  const url = new URL(inject("postgresUrl"));
  url.pathname = "/latin";
  const archive = connectArchive(url.href);
  try {
    await expect(migrate(archive)).rejects.toThrow("its encoding is LATIN1");
    expect(await query("select from pg_namespace where nspname = 'tollgate'", [], url.href)).toEqual([]);
  } finally {
    archive.close();
    await query("drop database latin with (force)");
  }
});

// Guarantee: what a transaction reads under a lock is newer than the wait for it.
test.each(["read committed", "repeatable read"])(
  "two gateways that start at once make one schema where the default is %s",
  async (isolation) => {
    const database = await createDatabase();
    await database.query(
      `alter database ${database.name} set default_transaction_isolation = '${isolation}'`,
    );
    const [holder, ...gateways] = [0, 1, 2].map(() => connectArchive(database.url));
    const bothWait = async () => {
      const [found] = await database.query<{ waiting: number }>(
        "select count(*)::int as waiting from pg_locks where locktype = 'advisory' and not granted",
      );
      return found?.waiting === gateways.length;
    };
    try {
      const migrated = await holder!.transaction(async (run) => {
        await run("select pg_advisory_xact_lock($1)", [MIGRATION_LOCK]);
        const all = Promise.all(gateways.map(migrate));
        await until(bothWait, "both gateways to wait for the lock");
        return { all };
      });
      const steps = await migrated.all;
      expect(steps.flat()).toEqual([...STEPS]);
    } finally {
      for (const archive of [holder!, ...gateways]) archive.close();
      await database.query(`alter database ${database.name} reset all`);
      await database.drop();
    }
  },
);
