import { archive } from "./archive.ts";
import type { Control } from "./controls.ts";

const postgresFails: Control["run"] = (options) =>
  archive.run(options, { hits: 8, width: 16, only: "postgres" });

/** Nothing but the primary keys and the look at the newest row keeps a batch from being lost. */
const ROWS_ARE_NO_CURSOR = [
  {
    file: "src/ledger/archive/copier.ts",
    from: "      copying.keepOnly([]);\n",
    to: "",
  },
  {
    file: "src/ledger/archive/tables.ts",
    from: "if (found?.rows !== known.length) throw",
    to: "if (found?.rows === -1) throw",
  },
];

/** Mistakes of copying and trimming. */
export const ARCHIVE_CONTROLS: readonly Control[] = [
  {
    name: "entries leave Redis before the archive has committed them",
    patches: [
      {
        file: "src/ledger/archive/trimming.ts",
        from: "for (const [partition, archivedTo] of newest) {",
        to: `for (const partition of partitions) {
          const { readLedger } = await import("../../store/ledger-entries.ts");
          const archivedTo = (await primary.command((redis) => readLedger(redis, partition, "0-0"))).at(-1);
          if (!archivedTo) continue;`,
      },
    ],
    run: postgresFails,
    caughtBy: "charged exactly once, nothing lost",
  },
  {
    name: "the cursor is ahead of what is committed, and a batch is lost",
    patches: [
      ...ROWS_ARE_NO_CURSOR,
      {
        file: "src/ledger/archive/copying.ts",
        from: 'await step("write");\n',
        to: 'for (const page of pages) positions.set(page.position.partition, page.next);\n  await step("write");\n',
      },
    ],
    run: postgresFails,
    caughtBy: "charged exactly once, nothing lost",
  },
  {
    name: "a batch is written twice",
    patches: [
      {
        file: "src/ledger/archive/schema/0001-archive.sql",
        from: "  id_number bigint GENERATED ALWAYS AS (split_part(id, '-', 2)::bigint) STORED,\n  PRIMARY KEY (partition, id, fork)\n",
        to: "  id_number bigint GENERATED ALWAYS AS (split_part(id, '-', 2)::bigint) STORED\n",
      },
      {
        file: "src/ledger/archive/schema/0001-archive.sql",
        from: "CREATE UNIQUE INDEX ledger_rows_request",
        to: "CREATE INDEX ledger_rows_request",
      },
      {
        file: "src/ledger/archive/copying.ts",
        from: "const written = await tables.write(pages);",
        to: "await tables.write(pages);\n  const written = await tables.write(pages);",
      },
    ],
    run: postgresFails,
    caughtBy: "the archive has every entry once",
  },
  {
    name: "an entry leaves Redis and is not in its account's checkpoint",
    patches: [
      {
        file: "lua/trim.lua",
        from: '"(" .. cut, "+", "COUNT", 1)[1][1])',
        to: '"(" .. cut, "+", "COUNT", 2)[2][1])',
      },
    ],
    run: postgresFails,
    caughtBy: "the ledger balances, nothing held",
  },
];
