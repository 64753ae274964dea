/** One instruction of a stage. */
export interface Step {
  /** In capitals: COPY, RUN, ENV, ... */
  keyword: string;
  /** Such as `--from=source`, as name and value. */
  flags: Record<string, string>;
  /** The text behind the flags, continuation lines joined. */
  text: string;
}

export interface Stage {
  name: string;
  base: string;
  steps: Step[];
}

/** The stages of a Dockerfile, as far as ours uses its language. @throws on a line before the first FROM other than ARG */
export function parseDockerfile(source: string): Stage[] {
  const stages: Stage[] = [];
  const lines = source.split("\n").filter((line) => !line.startsWith("#"));
  for (const line of lines
    .join("\n")
    .replaceAll(/\\\n\s*/g, "")
    .split("\n")) {
    const match = /^([A-Z]+) +((?:--[a-z-]+=\S+ +)*)(.*)$/.exec(line);
    if (!match) {
      if (line.trim() === "") continue;
      throw new Error(`not understood: ${line}`);
    }
    const [, keyword = "", flagText = "", text = ""] = match;
    const flags = Object.fromEntries(
      [...flagText.matchAll(/--([a-z-]+)=(\S+)/g)].map(([, name = "", value = ""]) => [name, value]),
    );
    if (keyword === "FROM") {
      const [base = "", , name = ""] = text.split(" ");
      stages.push({ name, base, steps: [] });
    } else if (stages.length > 0) {
      stages.at(-1)!.steps.push({ keyword, flags, text });
    } else if (keyword !== "ARG") {
      throw new Error(`${keyword} before the first FROM`);
    }
  }
  return stages;
}

/** Words of an exec form such as `CMD ["node", "src/main.ts"]`. @throws when it is a shell form */
export function execForm(text: string): string[] {
  const start = text.indexOf("[");
  if (start < 0) throw new Error(`a shell would stand in between: ${text}`);
  return JSON.parse(text.slice(start)) as string[];
}

/** All variables that ENV sets in a stage. */
export function environmentOf({ steps }: Stage): Record<string, string> {
  const texts = steps.filter(({ keyword }) => keyword === "ENV").map(({ text }) => text);
  return Object.fromEntries(texts.flatMap((text) => text.split(" ").map((pair) => pair.split("=", 2))));
}

/** The text of a stage's last instruction of a kind. */
export const lastOf = ({ steps }: Stage, wanted: string): string | undefined =>
  steps.findLast(({ keyword }) => keyword === wanted)?.text;

/**
 * True if a path of the repository goes into the build, by a .dockerignore that has plain paths and `*` only.
 * The last line that fits decides.
 */
export function isInContext(path: string, dockerignore: string): boolean {
  let included = true;
  for (const line of dockerignore.split("\n")) {
    const pattern = line.trim().replace(/^!/, "");
    if (pattern === "" || pattern.startsWith("#")) continue;
    if (/[?[]|.\*|\*./.test(pattern)) throw new Error(`a pattern that is not understood: ${line}`);
    if (pattern === "*" || path === pattern || path.startsWith(`${pattern}/`))
      included = line.startsWith("!");
  }
  return included;
}
