import type { Command } from "commander";
import type { LIMITS, LimitName } from "../domain/limits.ts";
import { whole } from "./options.ts";

/**
 * Adds an option for each of these limits.
 * @param more.word what takes a limit away, beside a number
 */
export function limitOptions(
  command: Command,
  limits: readonly (typeof LIMITS)[number][],
  more: { word?: string; least?: number; after?: string } = {},
): Command {
  const { word, least = 1, after = "" } = more;
  for (const { name, unit, max } of limits) {
    const parse = whole(least, max);
    command.option(
      `--${name.replaceAll("_", "-")} <n${word === undefined ? "" : `|${word}`}>`,
      unit + after,
      // Commander takes null for a missing value, so the word itself stands for it.
      (text) => (text === word ? word : parse(text)),
    );
  }
  return command;
}

/** A limit that the flags of a command give; null where they take it away. */
export function limitIn(flags: object, name: LimitName): number | null | undefined {
  const flag = name.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
  const value = (flags as Record<string, number | string | undefined>)[flag];
  return typeof value === "string" ? null : value;
}
