/** One mistake in the configuration. */
export interface ConfigProblem {
  /** The file as an operator would type it, or `environment`. */
  readonly file: string;
  /** Dotted, such as `server.port`; the variable's name for the environment; "" for the whole file. */
  readonly path: string;
  /** Counted from 1; absent if the problem has no place in the file. */
  readonly line?: number;
  readonly message: string;
}

/** The `file` of a problem with a variable. */
export const ENVIRONMENT = "environment";

/** The configuration cannot be used. The message can be printed as it is, with one line per problem. */
export class ConfigError extends Error {
  /** By file, then by line. */
  readonly problems: readonly ConfigProblem[];

  constructor(problems: readonly ConfigProblem[]) {
    const files = new Set(problems.map(({ file }) => file));
    // Variables come last, after the files.
    if (files.delete(ENVIRONMENT)) files.add(ENVIRONMENT);
    const inOrder = [...files].flatMap((name) =>
      problems.filter(({ file }) => file === name).toSorted((a, b) => (a.line ?? 0) - (b.line ?? 0)),
    );
    super(inOrder.map(printed).join("\n"));
    this.name = "ConfigError";
    this.problems = inOrder;
  }
}

/** A problem in one line, for operators. */
export function printed({ file, path, line, message }: ConfigProblem): string {
  const place = line === undefined ? file : `${file}:${line}`;
  return path === "" ? `${place}: ${message}` : `${place}: ${path}: ${message}`;
}
