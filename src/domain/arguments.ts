/**
 * For programs that take none: an option that is ignored looks as if it were in force.
 * @param words what follows the program on its command line
 * @param program such as `npm start`
 * @returns what is wrong, to be printed; undefined without words
 */
export function refusedArguments(words: readonly string[], program: string): string | undefined {
  if (words.length === 0) return undefined;
  return (
    `${program} takes no arguments, and was given: ${words.join(" ")}\n` +
    "Settings are in the config file (TOLLGATE_CONFIG) and the environment: docs/configuration.md. " +
    "Commands such as `keys create` are those of `node src/cli.ts`: docs/cli.md.\n"
  );
}
