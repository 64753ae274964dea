import type { Command } from "commander";
import { expect, test } from "vitest";
import { EXAMPLES, NOTES } from "../../../src/commands/examples.ts";
import { commandPath, commandsOf, tollgateProgram } from "../../../src/commands/program.ts";
import { withoutSecrets } from "../../../src/domain/operator-texts.ts";

const leaves = (program: Command): Command[] =>
  commandsOf(program).filter((command) => command.commands.length === 0);
const LEAVES = leaves(tollgateProgram()).map(commandPath);

test("every command has an example, and no example or note is about another", () => {
  expect(LEAVES.filter((words) => !EXAMPLES[words]?.length)).toEqual([]);
  const all = commandsOf(tollgateProgram()).map(commandPath);
  expect([...Object.keys(EXAMPLES), ...Object.keys(NOTES)].filter((words) => !all.includes(words))).toEqual(
    [],
  );
});

test("every command takes --json", () => {
  const without = leaves(tollgateProgram()).filter(
    ({ options }) => !options.some(({ long }) => long === "--json"),
  );
  expect(without.map(commandPath)).toEqual([]);
});

const LINES = Object.entries(EXAMPLES).flatMap(([words, examples]) =>
  examples.map(([, line]) => [line, words] as const),
);
test.each(LINES)("the example `%s` is understood", async (line, words) => {
  const program = tollgateProgram();
  const called: string[] = [];
  for (const command of leaves(program)) command.action(() => void called.push(commandPath(command)));
  // The words that a shell leaves for the command itself.
  const [, typed = ""] = /\btollgate ([^|<>)]+)/.exec(line) ?? [];
  await program.parseAsync(typed.trim().split(/ +/), { from: "user" });
  expect(called).toEqual(words === "" ? [expect.any(String)] : [words]);
});

test("an example with an option that is not there would be found", async () => {
  const program = tollgateProgram();
  for (const command of commandsOf(program)) command.configureOutput({ writeErr: () => undefined });
  await expect(program.parseAsync(["keys", "list", "--acount", "acme"], { from: "user" })).rejects.toThrow(
    "--account",
  );
});

test.each([
  [
    "no task or request sk_live_xx; ended ones are forgotten",
    "no task or request sk_…; ended ones are forgotten",
  ],
  ["sk_a;b~!x, sk_1234;", "sk_…, sk_…;"],
  ["there is no token tgm_4f9aB7/c2e8d1", "there is no token tgm_…"],
  ["keys begin with sk_, task_1 does not", "keys begin with sk_, task_1 does not"],
])("of `%s` secrets are taken out, and nothing else", (text, left) => {
  expect(withoutSecrets(text)).toBe(left);
});
