import { Readable } from "node:stream";
import { vi } from "vitest";
import { run } from "../../src/commands/program.ts";

/** Output of a command line, and its exit code. */
export interface Ran {
  code: number;
  stdout: string;
  stderr: string;
}

/**
 * Runs the command tree in this process, which saves the start of another. One at a time: output and environment
 * belong to the process.
 * @param env the whole environment
 * @param options.stdin what it reads
 */
export async function runCommand(
  args: readonly string[],
  env: Record<string, string>,
  options: { stdin?: string } = {},
): Promise<Ran> {
  const before = { env: process.env, exitCode: process.exitCode };
  const ran: Ran = { code: 0, stdout: "", stderr: "" };
  const spies = (["stdout", "stderr"] as const).map((name) =>
    vi.spyOn(process[name], "write").mockImplementation(((text: string, ...rest: unknown[]) => {
      ran[name] += text;
      const done = rest.at(-1);
      if (typeof done === "function") done();
      return true;
    }) as typeof process.stdout.write),
  );
  const stdin = vi
    .spyOn(process, "stdin", "get")
    .mockReturnValue(Readable.from([options.stdin ?? ""]) as never);
  process.env = env;
  try {
    ran.code = await run(args);
  } finally {
    process.env = before.env;
    process.exitCode = before.exitCode;
    for (const spy of [...spies, stdin]) spy.mockRestore();
  }
  return ran;
}
