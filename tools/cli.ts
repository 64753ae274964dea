import type { Command } from "commander";
import { EXAMPLES, NOTES } from "../src/commands/examples.ts";
import { commandPath, commandsOf, tollgateProgram } from "../src/commands/program.ts";
import type { Generated } from "./generated.ts";

/** The page about the command line, from the same tree that parses it. */
export const cli: Generated = { file: "docs/cli.md", text: page };

const INTRODUCTION = `# Command line

Written by \`npm run generate\` from [src/commands](../src/commands); change it there.

\`tollgate\` stands for \`npm run -s tollgate --\` in the repository, and for \`node src/cli.js\` in the Docker image.
\`npm link\` puts the command itself on the PATH. It works on the Redis at \`REDIS_URL\`, else on the config's; where a
command needs the config (tiers, the upstream), that is \`TOLLGATE_CONFIG\`, as for the gateway.

- **\`--json\`** prints one JSON object on standard output and nothing else there. What goes wrong is said in words on
  standard error.
- **Colours, cut columns and times told from now** are for terminals only; in a pipe the text is plain and whole.
  \`NO_COLOR\`, \`FORCE_COLOR\` and \`TERM=dumb\` are obeyed. Progress of long work is one line on standard error, if that is
  a terminal.
- **Completion**: put the line for your shell from [tollgate completion](#tollgate-completion) into its start file. A
  shell completes a command by its name, so it takes \`npm link\`, or a function of that name, such as
  \`tollgate() { npm run -s tollgate -- "$@"; }\`.
- **Keys** are shown once, when they are made. No error repeats what looks like one.

| exit code | means |
| --- | --- |
| 0 | done; all in order |
| 1 | an error, in words on standard error; or the ledger, the config or what \`doctor\` looks at are not in order |
| 2 | done as far as possible: of a store on several servers, one is away. Standard error names the partitions that could not be read, \`unread\` does with --json. Or not confirmed: with \`store.confirm_replicas\`, too few replicas have what was written. Standard error says what to repeat, \`confirmed\` is false with --json |
| 130, 143 | interrupted by Ctrl-C or SIGTERM |
`;

function page(): string {
  const leaves = commandsOf(tollgateProgram()).filter((command) => command.commands.length === 0);
  const contents = leaves.map((command) => {
    const name = `tollgate ${commandPath(command)}`;
    return `| [${name}](#${name.replaceAll(" ", "-")}) | ${cell(command.description())} |`;
  });
  const index = ["| command | |", "| --- | --- |", ...contents].join("\n");
  return [INTRODUCTION, `${index}\n`, ...leaves.map(section)].join("\n");
}

function section(command: Command): string {
  const words = commandPath(command);
  const helper = command.createHelp();
  const rows = [
    ...helper
      .visibleArguments(command)
      .map((each) => [helper.argumentTerm(each), helper.argumentDescription(each)]),
    ...helper
      .visibleOptions(command)
      .filter((each) => each.long !== "--help")
      .map((each) => [helper.optionTerm(each), helper.optionDescription(each)]),
  ];
  const table = rows.map(([term = "", what = ""]) => `| \`${cell(term)}\` | ${cell(what)} |`);
  const examples = (EXAMPLES[words] ?? []).flatMap(([what, line]) => [`# ${what}`, line]);
  return [
    `## tollgate ${words}`,
    "",
    `\`${helper.commandUsage(command)}\``,
    "",
    `${capital(command.description())}.`,
    "",
    ...(NOTES[words] ?? []).flatMap((note) => [note, ""]),
    "| argument, option | |",
    "| --- | --- |",
    ...table,
    "",
    "```sh",
    ...examples,
    "```",
    "",
  ].join("\n");
}

/** A pipe would end the cell. */
const cell = (text: string): string => text.replaceAll("|", "\\|");
const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
