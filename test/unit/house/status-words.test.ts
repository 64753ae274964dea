import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { TASK_STATUSES } from "../../../src/domain/answers.ts";
import { STATUS_WORDS } from "../../../src/upstream/answer.ts";

test("docs/configuration.md lists the words for task states that are known", () => {
  const page = readFileSync(join(import.meta.dirname, "../../../docs/configuration.md"), "utf8");
  for (const status of TASK_STATUSES) {
    const row = page.split("\n").find((line) => line.startsWith(`| \`${status}\` | `));
    const listed = [...row!.split(" | ")[1]!.matchAll(/`(\w+)`/g)].map(([, word]) => word);
    expect(listed).toEqual(Object.keys(STATUS_WORDS).filter((word) => STATUS_WORDS[word] === status));
  }
});
