import { globSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";

export const ROOT = resolve(import.meta.dirname, "../../..");

/** The commands of a page as a reader pastes them. */
export interface Block {
  page: string;
  /** Where the fence is. */
  line: number;
  text: string;
  /** Page and first command: what a plan calls it. */
  name: string;
}

const SHELL = /^( *)```(?:sh|bash|shell|console)\n([\s\S]*?)^ *```/gm;

/** Every shell block of every page that readers are given. */
export function shellBlocks(): Block[] {
  const pages = globSync("{*.md,docs/**/*.md,bench/*.md,examples/*/*.md}", { cwd: ROOT }).sort();
  const blocks = pages.flatMap((page) => blocksOf(page, readFileSync(join(ROOT, page), "utf8")));
  // The examples of a command are alternatives.
  return blocks.flatMap((block) => (block.page === "docs/cli.md" ? linesOf(block) : [block]));
}

const linesOf = (block: Block): Block[] =>
  block.text
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"))
    .map((text) => ({ ...block, text, name: `${block.page}: ${text}` }));

export const blocksOf = (page: string, source: string): Block[] =>
  [...source.matchAll(SHELL)].map(({ index, 1: indent = "", 2: body = "" }) => {
    const lines = body
      .split("\n")
      .map((line) => (line.startsWith(indent) ? line.slice(indent.length) : line));
    const first = lines.find((one) => one.trim() !== "" && !one.startsWith("#")) ?? "";
    const line = source.slice(0, index).split("\n").length;
    return { page, line, text: lines.join("\n"), name: `${page}: ${first.replace(/\s+#.*$/, "").trim()}` };
  });

/** Commands and names in the running text, between backticks. */
export const spansOf = (source: string): string[] =>
  [...source.replaceAll(/^ *```[\s\S]*?^ *```/gm, "").matchAll(/`([^`]+)`/g)].map(([, span = ""]) =>
    span.replaceAll("\n", " "),
  );
