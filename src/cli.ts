#!/usr/bin/env node
import { run } from "./commands/program.ts";

process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  // The reader of a pipe may close it early, as `head` does.
  if (error.code === "EPIPE") process.exit(0);
  const why = `error: standard output cannot be written (${error.message}); what was asked for may be done all the same`;
  process.stderr.write(`${why}\n`, () => process.exit(1));
});
// Nobody reads the error.
process.stderr.on("error", () => undefined);

process.exitCode = await run(process.argv.slice(2));
