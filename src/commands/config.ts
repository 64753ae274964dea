import path from "node:path";
import { Command } from "commander";
import { ConfigError, configPath, loadConfig } from "../config/config.ts";
import type { ConfigProblem } from "../config/problems.ts";
import { command, print } from "./context.ts";

/** `tollgate config ...` */
export function configCommand(): Command {
  return new Command("config").description("the configuration").addCommand(
    command("check", "say everything that is wrong with a config file")
      .argument("[file]", "left out: TOLLGATE_CONFIG, else config/tollgate.yaml")
      .action((file: string | undefined, flags: { json?: boolean }) => {
        const { problems, text } = checkConfig(file);
        const name = configPath(sourceOf(file));
        const shown = path.relative(process.cwd(), name);
        const ok = problems.length === 0;
        const words = ok ? `${shown} is valid.` : `${text}\n${problems.length} problems in ${shown}.`;
        print({ json: { ok, file: name, problems }, text: words, ok }, flags);
      }),
  );
}

/** All problems of a config file and of the environment, and the same as text. */
export function checkConfig(file?: string): { problems: readonly ConfigProblem[]; text: string } {
  try {
    loadConfig(sourceOf(file));
    return { problems: [], text: "" };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return { problems: error.problems, text: error.message };
  }
}

const sourceOf = (file: string | undefined) =>
  file === undefined ? { env: process.env } : { env: process.env, file };
