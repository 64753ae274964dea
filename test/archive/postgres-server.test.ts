import { expect, test } from "vitest";
import { createDatabase, query } from "../support/postgres.ts";
import { startPostgres } from "../support/postgres-server.ts";

test("a killed PostgreSQL comes back with what it had committed, on the port that it had", async () => {
  const server = await startPostgres();
  try {
    const database = await createDatabase(server.url());
    await database.query("create table kept (n int)");
    await database.query("insert into kept values (1)");
    await server.kill();
    await expect(database.query("select n from kept")).rejects.toThrow(/ECONNREFUSED/);
    await server.start();
    expect(await database.query("select n from kept")).toEqual([{ n: 1 }]);
  } finally {
    await server.remove();
  }
});

test("a suspended PostgreSQL answers once it is resumed", async () => {
  const server = await startPostgres();
  try {
    await server.suspend();
    let isAnswered = false;
    const answer = query("select 1 as n", [], server.url()).finally(() => {
      isAnswered = true;
    });
    // Long enough for an answer of a server that runs: this process gets others meanwhile.
    for (let times = 0; times < 3; times++) await query("select 1");
    expect(isAnswered).toBe(false);
    await server.resume();
    expect(await answer).toEqual([{ n: 1 }]);
  } finally {
    await server.remove();
  }
});
