export interface ConfigProblem {
  /** As an operator would type it, or `environment`. */
  readonly file: string;
  /** Dotted, such as `server.port`; the variable's name for the environment; "" for the whole file. */
  readonly path: string;
  readonly line?: number;
  readonly message: string;
  /** For programs, of problems that have one. */
  readonly code?: string;
}

export const ENVIRONMENT = "environment";

/** The message has one line per problem. */
export class ConfigError extends Error {
  readonly problems: readonly ConfigProblem[];

  constructor(problems: readonly ConfigProblem[]) {
    const files = new Set(problems.map(({ file }) => file));
    if (files.delete(ENVIRONMENT)) files.add(ENVIRONMENT);
    const inOrder = [...files].flatMap((name) =>
      problems.filter(({ file }) => file === name).toSorted((a, b) => (a.line ?? 0) - (b.line ?? 0)),
    );
    super(inOrder.map(printed).join("\n"));
    this.name = "ConfigError";
    this.problems = inOrder;
  }
}

export function printed({ file, path, line, message }: ConfigProblem): string {
  const place = line === undefined ? file : `${file}:${line}`;
  return path === "" ? `${place}: ${message}` : `${place}: ${path}: ${message}`;
}
