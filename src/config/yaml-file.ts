import { readFileSync, statSync } from "node:fs";
import path from "node:path";
import {
  type Document,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  parseDocument,
  type YAMLError,
} from "yaml";
import { ConfigError, type ConfigProblem } from "./problems.ts";
import type { BrokenRule } from "./validate.ts";

export const FILE_BYTES_MAX = 1024 * 1024;

export type FileReader = (file: string) => Buffer;

export const fromDisk: FileReader = (file) => {
  // A pipe has the size 0.
  if (statSync(file).size > FILE_BYTES_MAX) throw Object.assign(new Error("too large"), { code: "EFBIG" });
  return readFileSync(file);
};

/** A pipe would block a process that serves requests. */
export const fromDiskAtOnce: FileReader = (file) => {
  const stats = statSync(file);
  if (!stats.isFile() && !stats.isDirectory()) throw Object.assign(new Error("a pipe"), { code: "ESPIPE" });
  return fromDisk(file);
};

export interface YamlFile {
  readonly name: string;
  readonly data: unknown;
  /** Mistakes that still allow the rest to be checked. */
  readonly problems: readonly ConfigProblem[];
  lineOf(keys: readonly string[]): number | undefined;
}

/** YAML 1.2, at most 1 MiB. @throws ConfigError */
export function readYaml(file: string, ifEmpty: string, read: FileReader = fromDisk): YamlFile {
  const name = printedName(file);
  const lines = new LineCounter();
  const source = readText(file, name, read);
  const document = parseDocument(source, {
    lineCounter: lines,
    prettyErrors: false,
    // The library would print warnings to stderr.
    logLevel: "error",
    // !!omap, !!set and !!binary would become objects whose content nothing here looks at.
    resolveKnownTags: false,
    // "10" and 10 become one key of an object, and the later would win.
    uniqueKeys: (a, b) => isScalar(a) && isScalar(b) && String(a.value) === String(b.value),
  });
  const problems = [...document.errors, ...document.warnings].map((error): ConfigProblem => {
    const { line, col } = lines.linePos(error.pos[0]);
    return { file: name, path: "", line, message: `${inWords(error, source)} (column ${col})` };
  });
  if (document.errors.some((error) => error.code !== "DUPLICATE_KEY")) throw new ConfigError(problems);
  const root = document.contents;
  const data = plainData(document, name);
  if (data === null && problems.length === 0) {
    // A file that is being written is empty first.
    const what = /\S/.test(source) ? "holds nothing but comments" : "is empty";
    throw new ConfigError([{ file: name, path: "", message: `${what}; ${ifEmpty}` }]);
  }
  return {
    name,
    data,
    problems,
    lineOf: (keys) => {
      const offset = offsetOf(root, keys, (alias) => (isAlias(alias) ? alias.resolve(document) : alias));
      return offset === undefined ? undefined : lines.linePos(offset).line;
    },
  };
}

export function placed(rule: BrokenRule, yaml: YamlFile): ConfigProblem {
  const line = yaml.lineOf(rule.keys);
  return {
    file: yaml.name,
    path: rule.keys.join("."),
    message: rule.message,
    ...(line !== undefined && { line }),
    ...(rule.code !== undefined && { code: rule.code }),
  };
}

function inWords(error: YAMLError, source: string): string {
  if (error.code === "DUPLICATE_KEY") {
    const key = /^[^\s:]*/.exec(source.slice(error.pos[0], error.pos[0] + 100));
    return `the key ${key?.[0]} was given before`;
  }
  return error.code === "MULTIPLE_DOCS" ? "a second document begins here; only one is read" : error.message;
}

function readText(file: string, name: string, read: FileReader): string {
  try {
    const bytes = read(file);
    if (bytes.length <= FILE_BYTES_MAX) return bytes.toString("utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EFBIG") {
      throw new ConfigError([{ file: name, path: "", message: `cannot be read: ${readFailure(error)}` }]);
    }
  }
  throw new ConfigError([{ file: name, path: "", message: "is larger than 1 MiB" }]);
}

export function readFailure(error: unknown): string {
  const code = (error as NodeJS.ErrnoException).code;
  if (code === "ENOENT") return "there is no such file";
  if (code === "EISDIR") return "it is a folder";
  if (code === "EACCES") return "permission denied";
  if (code === "ESPIPE")
    return "it is no regular file, and a running gateway does not wait for one to be written";
  if (code === "EFBIG") return "it is larger than 1 MiB";
  return String(code);
}

/** Whoever walks through the settings would never come to the end of a recursive alias. */
function plainData(document: Document, name: string): unknown {
  let message = "an alias stands for a map or list that it is in";
  try {
    const data: unknown = document.toJS();
    if (isTree(data)) return data;
  } catch (error) {
    // Missing aliases, and too many of them.
    ({ message } = error as Error);
  }
  throw new ConfigError([{ file: name, path: "", message }]);
}

function isTree(data: unknown): boolean {
  try {
    JSON.stringify(data);
    return true;
  } catch {
    return false;
  }
}

function offsetOf(
  root: Node | null,
  keys: readonly string[],
  resolve: (node: unknown) => unknown,
): number | undefined {
  let node: unknown = root;
  let offset: number | undefined;
  for (const key of keys) {
    node = resolve(node);
    if (isMap<Node, unknown>(node)) {
      const pair = node.items.find((item) => isScalar(item.key) && String(item.key.value) === key);
      if (pair === undefined) return offset;
      offset = pair.key.range?.[0] ?? offset;
      node = pair.value;
    } else if (isSeq<Node>(node)) {
      node = node.items[Number(key)];
      offset = (node as Node | undefined)?.range?.[0] ?? offset;
    } else return offset;
  }
  return offset;
}

export function printedName(file: string): string {
  const relative = path.relative(process.cwd(), file);
  return relative === "" || relative.startsWith("..") ? file : relative;
}
