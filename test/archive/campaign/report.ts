import { commit, writePart } from "../../fault/report.ts";
import { KILLS, type Kill } from "./kills.ts";
import type { Run } from "./run.ts";

/** Writes the campaign's section of the page of figures, and leaves the rest of the page. */
export async function writeSection(
  run: Run & { seed: number },
  controls: readonly { name: string; words: string; isCaught: boolean }[],
): Promise<void> {
  const { kills, verdict, seed, seconds } = run;
  const total = Object.values(kills).reduce((sum, count) => sum + count, 0);
  const rows = (Object.keys(KILLS) as Kill[]).map((kill) => `| ${KILLS[kill]} | ${kills[kill]} |`);
  const criteria: [string, readonly string[], string][] = [
    [
      "entries missing",
      verdict.missing,
      `${run.charged} charges, ${run.failed} refunds and ${run.granted} grants that clients were told of`,
    ],
    [
      "entries doubled",
      verdict.doubled,
      `${verdict.archived} entries in the archive, ${verdict.inRedis} in Redis, ${verdict.uncopied} of these not copied`,
    ],
    [
      "wrong folds",
      verdict.wrongFolds,
      `${run.left} entries have left Redis; balances, totals used, checkpoints, \`ledger verify\``,
    ],
  ];
  const judged = criteria.map(
    ([name, found, what]) =>
      `| ${name} | ${found.length === 0 ? "met" : "**not met**"} | ${found.length} | ${what} |`,
  );
  const bugs = controls.map(
    ({ name, words, isCaught }) => `| ${name} | ${isCaught ? "caught" : "**not caught**"} | ${words} |`,
  );
  const seeded =
    bugs.length === 0 ? "" : `\n| seeded bug | | found |\n| --- | --- | --- |\n${bugs.join("\n")}\n`;
  const text = `Written by \`npm run test:archive -- --controls\`: three gateways copy to PostgreSQL and trim at once (\`archive.keep: 0s\`) under load,
while one of them, PostgreSQL or Redis is killed. ${total} kills in ${seconds} s, seed ${seed}, commit ${commit()}.

| kill | times |
| --- | --- |
${rows.join("\n")}

| criterion at the end | | found | of |
| --- | --- | --- | --- |
${judged.join("\n")}
${seeded}`;
  await writePart("archive", text);
}
