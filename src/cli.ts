#!/usr/bin/env node
import { run } from "./commands/program.ts";

// The reader of a pipe may leave early, as `head` does.
process.stdout.on("error", (error: NodeJS.ErrnoException) => process.exit(error.code === "EPIPE" ? 0 : 1));
// Nobody is left to tell.
process.stderr.on("error", () => undefined);

process.exitCode = await run(process.argv.slice(2));
