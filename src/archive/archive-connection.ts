import pg from "pg";
import type { ArchiveConnection, ArchiveQuery } from "./tables.ts";

const STATEMENT_MS = 10_000;
const ANSWER_MS = STATEMENT_MS + 2000;
const CONNECT_MS = 5000;
/** Limits how long a hung process blocks its successor. */
const IDLE_IN_TRANSACTION_MS = 10_000;
const IDLE_MS = 60_000;

export interface OpenedArchive extends ArchiveConnection {
  close(): void;
}

interface ArchiveOptions {
  statementMs?: number;
  idleMs?: number;
  most?: number;
}

/** Connects at the first statement. A failed connection is not used again. */
export function connectArchive(url: string, options: ArchiveOptions = {}): OpenedArchive {
  const { statementMs = STATEMENT_MS, idleMs = IDLE_IN_TRANSACTION_MS, most = 2 } = options;
  const clients = new Set<pg.Client>();
  const pool = new pg.Pool({
    connectionString: url,
    max: most,
    application_name: "tollgate",
    // Dates are read as texts, and a database or a role may write them in another style. PgBouncer keeps this one setting of a client, and drops
    // `options` of the start; an address with `options` of its own replaces them.
    onConnect: (client) => client.query("SET datestyle = ISO"),
    connectionTimeoutMillis: CONNECT_MS,
    idleTimeoutMillis: IDLE_MS,
    keepAlive: true,
    allowExitOnIdle: true,
    statement_timeout: statementMs,
    query_timeout: statementMs + (ANSWER_MS - STATEMENT_MS),
    idle_in_transaction_session_timeout: idleMs,
  });
  // A lost idle connection is replaced by the next statement.
  pool.on("error", () => undefined);
  pool.on("connect", (client) => clients.add(client));
  pool.on("remove", (client) => clients.delete(client));

  async function transaction<T>(work: (query: ArchiveQuery) => Promise<T>): Promise<T> {
    const client = await pool.connect();
    // Without a listener, a lost connection would end the process.
    const ignore = (): void => undefined;
    client.on("error", ignore);
    let failed: Error | undefined;
    try {
      // Reads after the wait for a lock must be newer than the wait, whatever the database's default is.
      await client.query("BEGIN ISOLATION LEVEL READ COMMITTED");
      const result = await work(queryOf(client));
      await client.query("COMMIT");
      return result;
    } catch (error) {
      failed = error as Error;
      throw error;
    } finally {
      client.off("error", ignore);
      client.release(failed);
    }
  }

  return {
    query: queryOf(pool),
    transaction,
    close(): void {
      // `end` closes clients with a running statement.
      void pool.end().catch(() => undefined);
      for (const client of clients) void client.end().catch(() => undefined);
    },
  };
}

const queryOf =
  (client: Pick<pg.Pool, "query">): ArchiveQuery =>
  async <Row extends object>(text: string, values: readonly unknown[] = []) =>
    (await client.query(text, [...values])).rows as Row[];
