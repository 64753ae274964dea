import type { LIMITS } from "../domain/limits.ts";
import { orNull } from "./operation-command.ts";
import { whole } from "./options.ts";

/**
 * Options that set these limits, by their flags.
 * @param more.word what takes a limit away, beside a number
 */
export const limitOptions = (
  limits: readonly (typeof LIMITS)[number][],
  { word, least = 1, after = "" }: { word?: string; least?: number; after?: string } = {},
) =>
  Object.fromEntries(
    limits.map(({ name, unit, max }) => {
      const parse = whole(least, max);
      const form = `--${name.replaceAll("_", "-")} <n${word === undefined ? "" : `|${word}`}>`;
      return [form, { about: unit + after, parse: word === undefined ? parse : orNull(word, parse) }];
    }),
  );
