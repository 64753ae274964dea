import { styleText } from "node:util";
import { Command, CommanderError } from "commander";
import { visibleLines, withoutSecrets } from "../domain/operator-texts.ts";
import { inCommandWords } from "../records/operator-error.ts";
import { REVISION, VERSION } from "../telemetry/version.ts";
import { auditCommand, tokensCommand } from "./access.ts";
import { accountsCommand } from "./accounts.ts";
import { adapterCommand } from "./adapter.ts";
import { archiveCommand } from "./archive.ts";
import { completionCommand } from "./completion.ts";
import { configCommand } from "./config.ts";
import { creditsCommand } from "./credits.ts";
import { doctorCommand } from "./doctor/doctor.ts";
import { EXAMPLES, NOTES } from "./examples.ts";
import { keysCommand } from "./keys.ts";
import { ledgerCommand } from "./ledger.ts";
import { partitionsCommand } from "./partitions.ts";
import { priceCommand } from "./price.ts";
import { maintenanceCommand, storeCommand } from "./store.ts";
import { tasksCommand } from "./tasks.ts";
import { hasColours, paint, type Screen, type Style, widthOf, wrapped } from "./terminal.ts";
import { statementCommand, usageCommand } from "./usage.ts";
import { webhooksCommand } from "./webhooks.ts";

/** Longer lines are hard to read, however wide the terminal. */
const HELP_CHARS = 100;

/** All commands. Each call makes a new tree: Commander keeps what it has parsed in it. */
export function tollgateProgram(): Command {
  const program = new Command("tollgate")
    .version(`${VERSION} (${REVISION})`)
    .description("Operates a Tollgate gateway, through the Redis at REDIS_URL, else the config's.")
    .addCommand(accountsCommand())
    .addCommand(keysCommand())
    .addCommand(creditsCommand())
    .addCommand(tasksCommand())
    .addCommand(tokensCommand())
    .addCommand(webhooksCommand())
    .addCommand(ledgerCommand())
    .addCommand(usageCommand())
    .addCommand(statementCommand())
    .addCommand(auditCommand())
    .addCommand(storeCommand())
    .addCommand(archiveCommand())
    .addCommand(partitionsCommand())
    .addCommand(configCommand())
    .addCommand(priceCommand())
    .addCommand(adapterCommand())
    .addCommand(maintenanceCommand())
    .addCommand(doctorCommand())
    .addCommand(completionCommand(tollgateProgram));
  for (const command of commandsOf(program)) applyDefaults(command);
  return program;
}

/** @returns the exit code: 0, 1 for an error or for something that is not in order, 130 or 143 when interrupted */
export async function run(words: readonly string[]): Promise<number> {
  process.exitCode = 0;
  try {
    await tollgateProgram().parseAsync(words, { from: "user" });
    return Number(process.exitCode);
  } catch (error) {
    // Wrong usage; Commander has said so.
    if (error instanceof CommanderError) return error.exitCode;
    process.stderr.write(
      `${paint("red", "error:", process.stderr)} ${visibleLines(withoutSecrets(inCommandWords(error)))}\n`,
    );
    return 1;
  }
}

export const commandsOf = (command: Command): Command[] => [command, ...command.commands.flatMap(commandsOf)];

/** The words that lead to a command, without `tollgate`. */
export function commandPath(command: Command): string {
  const above = command.parent ? commandPath(command.parent) : "";
  return command.parent ? `${above} ${command.name()}`.trim() : "";
}

function applyDefaults(command: Command): void {
  const name = `tollgate ${commandPath(command)}`.trim();
  command
    .exitOverride()
    .showHelpAfterError(`\`${name} --help\` shows how it is used.`)
    .configureHelp({
      styleTitle: bold,
      styleCommandText: bold,
      styleSubcommandText: cyan,
      styleOptionText: cyan,
    })
    .configureOutput({
      getOutHasColors: () => hasColours(process.stdout),
      getErrHasColors: () => hasColours(process.stderr),
      outputError: (text, write) =>
        write(withoutSecrets(text).replace(/^error:/, paint("red", "error:", process.stderr))),
    });
  command.addHelpText("after", ({ error }) =>
    afterHelp(commandPath(command), error ? process.stderr : process.stdout),
  );
}

function afterHelp(words: string, screen: Screen): string {
  const width = Math.min(widthOf(screen) ?? HELP_CHARS, HELP_CHARS);
  const notes = (NOTES[words] ?? []).map((note) => `\n${wrapped(note, width, 0)}`);
  const examples = (EXAMPLES[words] ?? []).map(
    ([what, line]) => `  ${always("dim", `# ${what}`)}\n  ${line}`,
  );
  const shown = examples.length === 0 ? [] : [`\n${bold("Examples:")}`, ...examples];
  return [...notes, ...shown].join("\n");
}

/** For help, from which Commander takes colours away again where they cannot be shown. */
const always = (style: Style, text: string): string => styleText(style, text, { validateStream: false });
const bold = (text: string): string => always("bold", text);
const cyan = (text: string): string => always("cyan", text);
