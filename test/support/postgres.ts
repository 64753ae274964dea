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

export type TestDatabase = Awaited<ReturnType<typeof createDatabase>>;

/** A new, empty database. It goes with its server, or earlier by `drop`. */
export async function createDatabase(server = inject("postgresUrl")) {
  const name = `test_${randomBytes(8).toString("hex")}`;
  // A copy of its files takes less than half of what a copy by way of the log takes.
  await query(`create database ${name} strategy file_copy`, [], server);
  const url = new URL(server);
  url.pathname = `/${name}`;
  return {
    name,
    url: url.href,
    /** The same database as another user of the server. */
    as(user: string): string {
      const other = new URL(url);
      other.username = user;
      return other.href;
    },
    query: <Row extends pg.QueryResultRow>(text: string, values: readonly unknown[] = []) =>
      query<Row>(text, values, url.href),
    drop: () => query(`drop database ${name} with (force)`, [], server),
  };
}
