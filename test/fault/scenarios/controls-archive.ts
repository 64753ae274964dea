import type { Patch } from "../tree.ts";
import { archive } from "./archive.ts";
import type { Control } from "./controls.ts";
import { lookUps } from "./look-ups.ts";

const postgresFails: Control["run"] = (options) =>
  archive.run(options, { hits: 8, width: 16, only: "postgres" });
/** A mistake that only shows where a write fails after it: of PostgreSQL's failures, none may come just there. */
const WRITES_FAIL = 'if (Math.random() < 0.3) throw new Error("PostgreSQL is away");';
/** For a mistake that only shows where a failure comes between two steps: of eight, none may. */
const postgresFailsOften: Control["run"] = (options) =>
  archive.run(options, { hits: 24, width: 16, only: "postgres" });

/** The copier asks the archive for its newest row, wherever that may be another one by now. Without that: */
const NEVER_LOOKED_AGAIN: readonly Patch[] = [
  { file: "src/archive/copier.ts", from: "copying.keepOnly([]);", to: "" },
  { file: "src/archive/copying.ts", from: "if (known && hasLost(state, known))", to: "if (!known)" },
  {
    file: "src/archive/copying.ts",
    from: "for (const partition of partitions) positions.delete(partition);\n        throw",
    to: "throw",
  },
  { file: "src/archive/tables.ts", from: "if (!positions.every(isSame))", to: "if (false)" },
];

/** Mistakes of copying and trimming. */
export const ARCHIVE_CONTROLS: readonly Control[] = [
  {
    name: "entries leave Redis before the archive has committed them",
    patches: [
      {
        file: "src/archive/copying.ts",
        from: '  await step?.("write");\n',
        // Entries leave once they count in usage, about a second after they were made.
        to: `  await step?.("write");
  await new Promise((done) => setTimeout(done, 1200));
  for (const { position, next } of pages)
    if (next.newest)
      await (await import("./trimming.ts")).trimLedger(primary.run, { partition: position.partition, archivedTo: next.newest, keepMs: 0 });
  ${WRITES_FAIL}
`,
      },
    ],
    run: postgresFailsOften,
    caughtBy: "the archive's balances are those of Redis",
  },
  {
    name: "the cursor is ahead of what is committed",
    patches: [
      ...NEVER_LOOKED_AGAIN,
      {
        file: "src/archive/copying.ts",
        from: '  await step?.("write");\n',
        to: `  await step?.("write");
  for (const { position, next } of pages) positions.set(position.partition, next);
  ${WRITES_FAIL}
`,
      },
    ],
    run: postgresFailsOften,
    caughtBy: "charged exactly once, nothing lost",
  },
  {
    name: "a batch is lost",
    patches: [
      ...NEVER_LOOKED_AGAIN,
      {
        file: "src/archive/rows.ts",
        from: "ENTRY_COLUMNS, entries)",
        // Every second one, from the first: on a busy machine a run has few.
        to: "ENTRY_COLUMNS, batches++ % 2 === 0 ? [] : entries)",
      },
      {
        file: "src/archive/rows.ts",
        from: "export type Written",
        to: "let batches = 0;\nexport type Written",
      },
    ],
    run: postgresFailsOften,
    caughtBy: "charged exactly once, nothing lost",
  },
  {
    name: "a batch is written twice",
    patches: [
      { file: "src/archive/tables.ts", from: "if (!positions.every(isSame))", to: "if (false)" },
      // The primary key and the index of requests.
      {
        file: "src/archive/schema/0001-archive.sql",
        from: "STORED,\n  PRIMARY KEY (partition, id, fork)\n",
        to: "STORED\n",
      },
      {
        file: "src/archive/schema/0001-archive.sql",
        from: "CREATE UNIQUE INDEX ledger_rows_request",
        to: "CREATE INDEX ledger_rows_request",
      },
      {
        file: "src/archive/copying.ts",
        from: "const written = await tables.write(pages);",
        to: "await tables.write(pages);\n  const written = await tables.write(pages);",
      },
    ],
    run: postgresFails,
    caughtBy: "the archive has every entry once",
  },
  {
    name: "a checkpoint is one off",
    patches: [
      {
        file: "lua/include/checkpoint.lua",
        from: "checkpoint.consumed = checkpoint.consumed - amount",
        to: "checkpoint.consumed = checkpoint.consumed - amount + (checkpoint.entries % 3 == 0 and 1 or 0)",
      },
    ],
    run: postgresFails,
    caughtBy: "the ledger balances, nothing held",
  },
  {
    name: "a look-up trusts any archive",
    patches: [
      {
        file: "src/archive/archived-money.ts",
        from: "      await identifyFor(nodes, query, partition);\n",
        to: "",
      },
      {
        file: "src/archive/archived-money.ts",
        from: "      await requireComplete(nodes, query, { partition, accountId });\n",
        to: "",
      },
    ],
    run: (options) => lookUps.run(options, { only: "other" }),
    caughtBy: "what operators do is done once",
  },
  {
    name: "a charge that Redis has lost is refunded",
    patches: [{ file: "src/archive/archived-money.ts", from: "if (ahead > 0 && newest", to: "if (!newest" }],
    run: (options) => lookUps.run(options, { only: "redis" }),
    caughtBy: "what operators do is done once",
  },
  {
    name: "an archive that lacks what has left Redis decides",
    patches: [
      { file: "src/archive/archived-money.ts", from: "  if (ahead < 0) throw new BehindError();\n", to: "" },
    ],
    run: (options) => lookUps.run(options, { only: "postgres" }),
    caughtBy: "failed tasks refunded exactly once",
  },
];
