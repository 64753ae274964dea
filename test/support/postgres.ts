import { randomBytes } from "node:crypto";
import pg from "pg";
import { inject } from "vitest";

/** Runs one statement as the superuser of the run's PostgreSQL, or of the one at `url`. */
export async function query<Row extends pg.QueryResultRow>(
  text: string,
  values: readonly unknown[] = [],
  url = inject("postgresUrl"),
): Promise<Row[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query<Row>(text, [...values])).rows;
  } finally {
    await client.end();
  }
}

/** Emptied databases of a server, by its URL: to make one takes ten times as long as to empty it. */
const spare = new Map<string, string[]>();
const EMPTY = `
  select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid();
  drop schema if exists tollgate cascade;
  drop schema public cascade;
  create schema public;
  grant usage on schema public to public`;

export type TestDatabase = Awaited<ReturnType<typeof createDatabase>>;

/** An empty database of the test's own. It goes with its server; after `drop` it is for another test. */
export async function createDatabase(server = inject("postgresUrl")) {
  const name = spare.get(server)?.pop() ?? (await makeDatabase(server));
  const url = new URL(server);
  url.pathname = `/${name}`;
  return {
    name,
    url: url.href,
    /** The address of the database for another user of the server. */
    as(user: string): string {
      const other = new URL(url);
      other.username = user;
      return other.href;
    },
    query: <Row extends pg.QueryResultRow>(text: string, values: readonly unknown[] = []) =>
      query<Row>(text, values, url.href),
    async drop(): Promise<void> {
      await query(EMPTY, [], url.href);
      spare.set(server, [...(spare.get(server) ?? []), name]);
    },
  };
}

async function makeDatabase(server: string): Promise<string> {
  const name = `test_${randomBytes(8).toString("hex")}`;
  // A copy of its files takes less than half of what a copy by way of the log takes.
  await query(`create database ${name} strategy file_copy`, [], server);
  return name;
}
