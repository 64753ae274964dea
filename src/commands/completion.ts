import { Argument, type Command } from "commander";
import { command } from "./options.ts";
import { print } from "./output.ts";

/** One of these words, a file, or something that no shell can know. */
type Values = readonly string[] | "file" | "any";

interface Flag {
  names: readonly string[];
  what: string;
  /** Undefined for one without a value. */
  values: Values | undefined;
}

/** The completions after some words: `keys create`, or none for `tollgate` itself. */
interface Place {
  words: string;
  commands: readonly { name: string; what: string }[];
  flags: readonly Flag[];
  operands: readonly { name: string; values: Values }[];
}

const SHELLS: Readonly<Record<string, (places: readonly Place[]) => string>> = { bash, zsh, fish };

export function completionCommand(program: () => Command): Command {
  return command("completion", "print what makes a shell complete commands and options")
    .addArgument(new Argument("<shell>", "the shell").choices(Object.keys(SHELLS)))
    .action((shell: string, flags: { json?: boolean }) => {
      const script = SHELLS[shell]?.(placesOf(program())) ?? "";
      print({ json: { shell, script }, text: script }, flags);
    });
}

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

const quoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;
const commandWords = (places: readonly Place[]): string[] =>
  places.map(({ words }) => words).filter((words) => words !== "");
const flagNames = (place: Place): string[] => place.flags.flatMap(({ names }) => names);

/** The completion for bash, from 3.2 on. */
export function bash(places: readonly Place[]): string {
  const values = places.flatMap((place) =>
    place.flags.flatMap(({ names, values }) =>
      values === undefined ? [] : [bashValues(place, names, values)],
    ),
  );
  const words = places.map((place) => {
    const own = [...place.commands.map(({ name }) => name), ...place.operands.flatMap(listed)];
    const files = place.operands.some((operand) => operand.values === "file");
    return `    ${quoted(place.words)}) words=${quoted(own.join(" "))}; flags=${quoted(flagNames(place).join(" "))}; files=${files ? "yes" : ""} ;;`;
  });
  return `# bash completion for tollgate.
_tollgate() {
  local current="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD - 1]}" at place="" next words="" flags="" files=""
  COMPREPLY=()
  # --name=value comes as three words.
  if [[ $current == "=" ]]; then current=""
  elif [[ $before == "=" ]]; then before="\${COMP_WORDS[COMP_CWORD - 2]}"; fi
  for ((at = 1; at < COMP_CWORD; at++)); do
    next="\${place:+$place }\${COMP_WORDS[at]}"
    case "$next" in
      ${commandWords(places).map(quoted).join(" | ")}) place=$next ;;
    esac
  done
  case "$place $before" in
${values.join("\n")}
  esac
  case "$place" in
${words.join("\n")}
  esac
  if [[ $current == -* ]]; then words=$flags; fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [[ -n $files && $current != -* ]]; then _tollgate_files "$current"; fi
}
_tollgate_files() {
  local IFS=$'\\n'
  COMPREPLY=($(compgen -f -- "$1"))
  compopt -o filenames 2>/dev/null
}
complete -F _tollgate tollgate`;
}

function bashValues({ words }: Place, names: readonly string[], values: Values): string {
  const patterns = names.map((name) => quoted(`${words} ${name}`)).join(" | ");
  if (values === "file") return `    ${patterns}) _tollgate_files "$current"; return ;;`;
  if (values === "any") return `    ${patterns}) return ;;`;
  return `    ${patterns}) COMPREPLY=($(compgen -W ${quoted(values.join(" "))} -- "$current")); return ;;`;
}

const listed = ({ values }: { values: Values }): readonly string[] =>
  typeof values === "string" ? [] : values;

/** The completion for zsh: a function for each command. As a file it is to be named _tollgate. */
export function zsh(places: readonly Place[]): string {
  return `#compdef tollgate
${places.map(zshFunction).join("\n")}
if [[ "$funcstack[1]" == _tollgate ]]; then _tollgate "$@"; else compdef _tollgate tollgate; fi`;
}

function zshFunction(place: Place): string {
  const name = zshName(place.words);
  const flags = place.flags.map((flag) => `    ${zshFlag(flag)}`);
  if (place.commands.length === 0) {
    const operands = place.operands.map(
      ({ name: operand, values }, at) =>
        `    ${quoted(`${at + 1}:${escaped(operand)}:${zshValues(values)}`)}`,
    );
    return `${name}() {\n  _arguments -s -S \\\n${[...flags, ...operands].join(" \\\n")}\n}`;
  }
  const commands = place.commands.map(({ name: word, what }) => `      ${quoted(`${word}:${what}`)}`);
  return `${name}() {
  local curcontext="$curcontext" state line
  local -a commands
  _arguments -C -S \\
${flags.join(" \\\n")} \\
    '1: :->command' '*:: :->rest'
  case $state in
    command)
      commands=(
${commands.join("\n")}
      )
      _describe command commands ;;
    rest) (( $+functions[${name}_$line[1]] )) && ${name}_$line[1] ;;
  esac
}`;
}

const zshName = (words: string): string => `_tollgate${words === "" ? "" : "_"}${words.replaceAll(" ", "_")}`;

function zshFlag({ names, what, values }: Flag): string {
  const value = values === undefined ? "" : `:value:${zshValues(values)}`;
  const description = `[${escaped(what)}]${value}`;
  // With "=" the value may stand behind a blank or an equals sign.
  const spelt = names.map((name) => (values !== undefined && name.startsWith("--") ? `${name}=` : name));
  if (spelt.length === 1) return quoted(`${spelt[0]}${description}`);
  return `${quoted(`(${names.join(" ")})`)}{${spelt.join(",")}}${quoted(description)}`;
}

function zshValues(values: Values): string {
  if (values === "file") return "_files";
  // A blank: nothing to offer, not even files.
  return values === "any" ? " " : `(${values.join(" ")})`;
}

/** Escapes what would end a description for \`_arguments\`. */
const escaped = (text: string): string => text.replaceAll(/[[\]:\\]/g, "\\$&");

export function fish(places: readonly Place[]): string {
  const lines = places.flatMap((place) => {
    const here = `complete -c tollgate -n ${quoted(`__tollgate_at ${quoted(place.words)}`)}`;
    return [
      ...place.commands.map(({ name, what }) => `${here} -a ${quoted(name)} -d ${quoted(what)}`),
      ...place.operands.flatMap(({ name, values }) => {
        if (values === "any") return [];
        return values === "file"
          ? [`${here} -F`]
          : [`${here} -a ${quoted(values.join(" "))} -d ${quoted(name)}`];
      }),
      ...place.flags.map((flag) => `${here} ${fishFlag(flag)}`),
    ];
  });
  const known = commandWords(places).map(quoted).join(" ");
  return `# fish completion for tollgate.
function __tollgate_at -d 'whether these are the commands so far'
  set -l place ''
  for word in (commandline -opc)[2..-1]
    set -l next (string trim "$place $word")
    contains -- "$next" ${known}; and set place $next
  end
  test "$place" = "$argv[1]"
end
complete -c tollgate -f
${lines.join("\n")}`;
}

function fishFlag({ names, what, values }: Flag): string {
  const spelt = names.map((name) => (name.startsWith("--") ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`));
  const value =
    values === undefined
      ? ""
      : values === "file"
        ? " -r -F"
        : ` -x${values === "any" ? "" : ` -a ${quoted(values.join(" "))}`}`;
  return `${spelt.join(" ")}${value} -d ${quoted(what)}`;
}
