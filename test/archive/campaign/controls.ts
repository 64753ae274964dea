import type { Patch } from "../../fault/tree.ts";

/** A seeded bug, and what must be found of it. */
export interface Control {
  name: string;
  patches: Patch[];
  caughtBy: "missing" | "doubled" | "wrongFolds";
}

export const CONTROLS: readonly Control[] = [
  {
    name: "trim before commit",
    patches: [
      {
        file: "src/ledger/archive/copying.ts",
        from: '  await step("write");\n',
        to: `  await step("write");
  for (const { position, next } of pages)
    if (next.newest)
      await source.trim(primary, { partition: position.partition, archivedTo: next.newest, keepMs: 0 });
`,
      },
    ],
    caughtBy: "missing",
  },
  {
    name: "a cursor that runs ahead",
    patches: [
      {
        file: "src/ledger/archive/copying.ts",
        from: '  await step("write");\n',
        to: '  await step("write");\n  for (const { position, next } of pages) positions.set(position.partition, next);\n',
      },
      { file: "src/ledger/archive/copier.ts", from: "copying.keepOnly([]);", to: "" },
      {
        file: "src/ledger/archive/copier.ts",
        from: "seen: copying.forgetLost",
        to: "seen: () => undefined",
      },
      {
        file: "src/ledger/archive/tables.ts",
        from: "if (found?.rows !== known.length)",
        to: "if (found === undefined)",
      },
    ],
    caughtBy: "missing",
  },
  {
    name: "a lost batch",
    patches: [
      {
        file: "src/ledger/archive/tables.ts",
        from: "used.flatMap(({ entries }) => entries),",
        to: "used.flatMap(({ entries }) => (Math.random() < 0.02 ? [] : entries)),",
      },
    ],
    caughtBy: "missing",
  },
  {
    name: "a batch twice",
    patches: [
      {
        file: "src/ledger/archive/tables.ts",
        from: "            forkOf,\n",
        to: "            (partition) => forkOf(partition) + Math.round(Math.random()),\n",
      },
      {
        file: "src/ledger/archive/copying.ts",
        from: 'if (outcome === "archived") positions.set(partition, page.next);',
        to: 'if (outcome === "archived" && Math.random() < 0.8) positions.set(partition, page.next);',
      },
    ],
    caughtBy: "doubled",
  },
  {
    name: "a checkpoint that is one off",
    patches: [
      {
        file: "lua/include/checkpoint.lua",
        from: "checkpoint.consumed = checkpoint.consumed - amount",
        to: "checkpoint.consumed = checkpoint.consumed - amount + (checkpoint.entries % 50 == 0 and 1 or 0)",
      },
    ],
    caughtBy: "wrongFolds",
  },
];
