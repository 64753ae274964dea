import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { ArchiveConnection, ArchiveQuery } from "./tables.ts";

/** Files `schema/<name>.sql` in order. A released step never changes. */
export const STEPS = ["0001-archive"] as const;

/** Equal in each version, so that two gateways never migrate at the same time. */
export const MIGRATION_LOCK = 7_032_019_041;
export const MIGRATION_MS = 3_600_000;
const LOCK_WAIT = "60s";

/** The message begins with the fault and says how to repair it. */
export class ArchiveError extends Error {
  override readonly name = "ArchiveError";
  readonly advice: string;

  constructor(why: string, advice: string) {
    super(why);
    this.advice = advice;
  }
}

/** Migrates forward, in one transaction and under a lock. @throws ArchiveError for a later version */
export async function migrate({ query, transaction }: ArchiveConnection): Promise<string[]> {
  if ((await stepsTaken(query)).length === STEPS.length) return [];
  return transaction(async (run) => {
    await run(`SET LOCAL lock_timeout = '${LOCK_WAIT}'`);
    await run(`SET LOCAL statement_timeout = 0`);
    await run("SELECT pg_advisory_xact_lock($1)", [MIGRATION_LOCK]);
    const wanted = STEPS.slice((await stepsTaken(run)).length);
    await requireUnicode(run);
    for (const step of wanted) {
      await run(readFileSync(join(import.meta.dirname, "schema", `${step}.sql`), "utf8"));
      await run("INSERT INTO tollgate.migrations (step) VALUES ($1)", [step]);
    }
    return [...wanted];
  });
}

/** A text with a letter that the database lacks would stop copying for ever. @throws ArchiveError */
async function requireUnicode(query: ArchiveQuery): Promise<void> {
  const [found] = await query<{ server_encoding: string }>("SHOW server_encoding");
  if (found?.server_encoding === "UTF8") return;
  throw new ArchiveError(
    `its encoding is ${found?.server_encoding}, which lacks letters of customers' texts`,
    "make the database anew, with `createdb --encoding UTF8 --template template0`",
  );
}

async function stepsTaken(query: ArchiveQuery): Promise<string[]> {
  // No `to_regclass`: a connection may still have its earlier answer after the wait for the lock.
  const tables = await query(
    "SELECT FROM pg_tables WHERE schemaname = 'tollgate' AND tablename = 'migrations'",
  );
  if (tables.length === 0) return [];
  const rows = await query<{ step: string }>("SELECT step FROM tollgate.migrations ORDER BY step");
  const taken = rows.map(({ step }) => step);
  const unknown = taken.find((step, at) => step !== STEPS[at]);
  if (unknown !== undefined)
    throw new ArchiveError(
      `the archive has the schema of a later version of Tollgate (${unknown})`,
      "run that version; this one does not use the archive",
    );
  return taken;
}

export const pendingSteps = async (query: ArchiveQuery): Promise<string[]> =>
  STEPS.slice((await stepsTaken(query)).length);
