import { Command } from "commander";
import { configCommand } from "./commands/config.ts";
import { inWords } from "./commands/context.ts";
import { creditsCommand } from "./commands/credits.ts";
import { doctorCommand } from "./commands/doctor.ts";
import { keysCommand } from "./commands/keys.ts";
import { ledgerCommand } from "./commands/ledger.ts";
import { tasksCommand } from "./commands/tasks.ts";

const program = new Command("tollgate")
  .description("Operates a Tollgate gateway, through the Redis at REDIS_URL, else the config's.")
  .addCommand(keysCommand())
  .addCommand(creditsCommand())
  .addCommand(tasksCommand())
  .addCommand(ledgerCommand())
  .addCommand(configCommand())
  .addCommand(doctorCommand());

/** Commander would exit on its own, and with other codes than 0 and 1. */
function overrideExit(command: Command): void {
  command.exitOverride();
  for (const child of command.commands) overrideExit(child);
}
overrideExit(program);

// The reader of a pipe may leave early, as `head` does.
process.stdout.on("error", (error: NodeJS.ErrnoException) => process.exit(error.code === "EPIPE" ? 0 : 1));

try {
  await program.parseAsync();
} catch (error) {
  const words = inWords(error);
  if (words !== undefined) process.stderr.write(`error: ${words}\n`);
  const isHelp = error instanceof Error && "exitCode" in error && error.exitCode === 0;
  process.exitCode = isHelp ? 0 : 1;
}
