/** For programs without arguments: an ignored option would look effective. @returns the message; undefined without arguments */
export function refusedArguments(words: readonly string[], program: string): string | undefined {
  if (words.length === 0) return undefined;
  return (
    `${program} takes no arguments, and was given: ${words.join(" ")}\n` +
    "Settings are in the config file (TOLLGATE_CONFIG) and the environment: docs/configuration.md. " +
    "Commands such as `keys create` are those of `node src/cli.ts`: docs/cli.md.\n"
  );
}
