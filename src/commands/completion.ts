import { Argument, type Command } from "commander";
import { bash, fish, zsh } from "./completion-shells.ts";
import { command } from "./options.ts";
import { print } from "./output.ts";

/** What a value may be: one of these words, a file, or something that no shell can know. */
export type Values = readonly string[] | "file" | "any";

export interface Flag {
  /** `-h`, `--help` */
  names: readonly string[];
  what: string;
  /** Undefined for one without a value. */
  values: Values | undefined;
}

/** What a shell completes after some words: `keys create`, or none for `tollgate` itself. */
export interface Place {
  words: string;
  commands: readonly { name: string; what: string }[];
  flags: readonly Flag[];
  operands: readonly { name: string; values: Values }[];
}

const SHELLS: Readonly<Record<string, (places: readonly Place[]) => string>> = { bash, zsh, fish };

/**
 * `tollgate completion SHELL`
 * @param program makes the tree of all commands, which is what is completed
 */
export function completionCommand(program: () => Command): Command {
  return command("completion", "print what makes a shell complete commands and options")
    .addArgument(new Argument("<shell>", "the shell").choices(Object.keys(SHELLS)))
    .action((shell: string, flags: { json?: boolean }) => {
      const script = SHELLS[shell]?.(placesOf(program())) ?? "";
      print({ json: { shell, script }, text: script }, flags);
    });
}

/** Every place in the tree below a command. */
export function placesOf(top: Command, words = ""): Place[] {
  const helper = top.createHelp();
  // Commander's own `help` says what `--help` says.
  const below = helper.visibleCommands(top).filter((each) => each.name() !== "help");
  const place: Place = {
    words,
    commands: below.map((each) => ({ name: each.name(), what: each.description() })),
    flags: helper.visibleOptions(top).map((option) => ({
      names: [option.short, option.long].filter((name) => name !== undefined),
      what: option.description,
      values: option.required || option.optional ? valuesOf(option.argChoices, option.flags) : undefined,
    })),
    operands: top.registeredArguments.map((argument) => ({
      name: argument.name(),
      values: valuesOf(argument.argChoices, `${argument.name()} ${argument.description}`),
    })),
  };
  return [place, ...below.flatMap((each) => placesOf(each, `${words} ${each.name()}`.trim()))];
}

function valuesOf(choices: readonly string[] | undefined, name: string): Values {
  return choices ?? (/\bfile\b/.test(name) ? "file" : "any");
}
