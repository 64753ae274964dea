import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { ArchiveConnection, ArchiveQuery } from "./tables.ts";

/**
 * The schema's steps, in order, each `schema/<name>.sql`. A step that has been released never changes; a new one goes to the
 * end.
 */
export const STEPS = ["0001-archive"] as const;

/** Any number, the same in each version: two gateways that start at a time do not migrate at a time. */
export const MIGRATION_LOCK = 7_032_019_041;
/** How long a step may take: it may rewrite a large table. */
export const MIGRATION_MS = 3_600_000;
/** How long one waits for another's migration. */
const LOCK_WAIT = "60s";

/** What an operator has to do about the archive. The message begins with what is wrong. */
export class ArchiveError extends Error {
  override readonly name = "ArchiveError";
  readonly advice: string;

  constructor(why: string, advice: string) {
    super(why);
    this.advice = advice;
  }
}

/**
 * Brings the schema up to this version of Tollgate. Steps only go forward, in one transaction and under a lock.
 * @returns the names of the steps that were taken
 * @throws ArchiveError for a schema of a later version
 */
export async function migrate({ query, transaction }: ArchiveConnection): Promise<string[]> {
  if ((await stepsTaken(query)).length === STEPS.length) return [];
  return transaction(async (run) => {
    await run(`SET LOCAL lock_timeout = '${LOCK_WAIT}'`);
    await run(`SET LOCAL statement_timeout = 0`);
    await run("SELECT pg_advisory_xact_lock($1)", [MIGRATION_LOCK]);
    const wanted = STEPS.slice((await stepsTaken(run)).length);
    for (const step of wanted) {
      await run(readFileSync(join(import.meta.dirname, "schema", `${step}.sql`), "utf8"));
      await run("INSERT INTO tollgate.migrations (step) VALUES ($1)", [step]);
    }
    return [...wanted];
  });
}

/** The steps that a database has taken. @throws ArchiveError for one that this version does not know */
async function stepsTaken(query: ArchiveQuery): Promise<string[]> {
  const [found] = await query<{ is_there: boolean }>(
    "SELECT to_regclass('tollgate.migrations') IS NOT NULL AS is_there",
  );
  if (!found?.is_there) return [];
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

/** The steps of this version that a database has not taken. @throws ArchiveError for a schema of a later one */
export const pendingSteps = async (query: ArchiveQuery): Promise<string[]> =>
  STEPS.slice((await stepsTaken(query)).length);
