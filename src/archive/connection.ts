import pg from "pg";
import type { ArchiveConnection, ArchiveQuery } from "./tables.ts";

/** How long a statement may take; the server ends it, too. A copier's batch takes milliseconds. */
const STATEMENT_MS = 10_000;
/** For a server that does not answer at all. */
const ANSWER_MS = STATEMENT_MS + 2000;
const CONNECT_MS = 5000;
/** A process that hangs in a transaction holds up the one that took over for so long. */
const IDLE_IN_TRANSACTION_MS = 10_000;
const IDLE_MS = 60_000;

export interface OpenedArchive extends ArchiveConnection {
  /** Ends all connections at once; what is under way fails. */
  close(): void;
}

interface ArchiveOptions {
  statementMs?: number;
  idleMs?: number;
  most?: number;
}

/**
 * Connections to an archive; nothing connects before the first statement. A connection that has failed is not used again.
 * @param options.statementMs how long a statement may take, for commands that read much
 * @param options.idleMs how long a transaction may wait between two statements
 * @param options.most connections at a time
 */
export function connectArchive(url: string, options: ArchiveOptions = {}): OpenedArchive {
  const { statementMs = STATEMENT_MS, idleMs = IDLE_IN_TRANSACTION_MS, most = 2 } = options;
  const clients = new Set<pg.Client>();
  const pool = new pg.Pool({
    connectionString: url,
    max: most,
    application_name: "tollgate",
    connectionTimeoutMillis: CONNECT_MS,
    idleTimeoutMillis: IDLE_MS,
    keepAlive: true,
    allowExitOnIdle: true,
    statement_timeout: statementMs,
    query_timeout: statementMs + (ANSWER_MS - STATEMENT_MS),
    idle_in_transaction_session_timeout: idleMs,
  });
  // A connection that is lost while nobody uses it; the next statement gets another.
  pool.on("error", () => undefined);
  pool.on("connect", (client) => clients.add(client));
  pool.on("remove", (client) => clients.delete(client));

  async function transaction<T>(work: (query: ArchiveQuery) => Promise<T>): Promise<T> {
    const client = await pool.connect();
    // Without a listener, a connection that is lost between two statements would end the process.
    const ignore = (): void => undefined;
    client.on("error", ignore);
    let failed: Error | undefined;
    try {
      await client.query("BEGIN");
      const result = await work(queryOf(client));
      await client.query("COMMIT");
      return result;
    } catch (error) {
      failed = error as Error;
      throw error;
    } finally {
      client.off("error", ignore);
      // A failed one is closed, which ends its transaction.
      client.release(failed);
    }
  }

  return {
    query: queryOf(pool),
    transaction,
    close(): void {
      // The pool waits for its clients; one with a statement under way is closed at once by its own `end`.
      void pool.end().catch(() => undefined);
      for (const client of clients) void client.end().catch(() => undefined);
    },
  };
}

const queryOf =
  (client: Pick<pg.Pool, "query">): ArchiveQuery =>
  async <Row extends object>(text: string, values: readonly unknown[] = []) =>
    (await client.query(text, [...values])).rows as Row[];
