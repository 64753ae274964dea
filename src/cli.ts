import { Command } from "commander";
import manifest from "../package.json" with { type: "json" };
import { configCommand } from "./commands/config.ts";
import { creditsCommand } from "./commands/credits.ts";
import { doctorCommand } from "./commands/doctor.ts";
import { keysCommand } from "./commands/keys.ts";
import { ledgerCommand } from "./commands/ledger.ts";
import { priceCommand } from "./commands/price.ts";
import { tasksCommand } from "./commands/tasks.ts";

const program = new Command("tollgate")
  .version(manifest.version)
  .description("Operates a Tollgate gateway, through the Redis at REDIS_URL, else the config's.")
  .addCommand(keysCommand())
  .addCommand(creditsCommand())
  .addCommand(tasksCommand())
  .addCommand(ledgerCommand())
  .addCommand(configCommand())
  .addCommand(priceCommand())
  .addCommand(doctorCommand());

// The reader of a pipe may leave early, as `head` does.
process.stdout.on("error", (error: NodeJS.ErrnoException) => process.exit(error.code === "EPIPE" ? 0 : 1));

// Wrong usage ends in Commander itself, with exit code 1.
try {
  await program.parseAsync();
} catch (error) {
  process.stderr.write(`error: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
