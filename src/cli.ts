import { Command } from "commander";
import { inWords } from "./commands/context.ts";
import { creditsCommand } from "./commands/credits.ts";
import { keysCommand } from "./commands/keys.ts";

const program = new Command("tollgate")
  .description(
    "Keys, credits, tasks and the ledger of a Tollgate gateway. Redis: REDIS_URL, else the config's.",
  )
  .addCommand(keysCommand())
  .addCommand(creditsCommand());

// Commander's own errors too become exit code 1, never more.
const everywhere = (command: Command): void => {
  command.exitOverride().showHelpAfterError(false);
  for (const child of command.commands) everywhere(child);
};
everywhere(program);

try {
  await program.parseAsync();
} catch (error) {
  const words = inWords(error);
  if (words !== undefined) process.stderr.write(`error: ${words}\n`);
  const shown = error instanceof Error && "exitCode" in error && error.exitCode === 0;
  process.exitCode = shown ? 0 : 1;
}
