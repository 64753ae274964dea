import { MOMENT_MS_MAX } from "../domain/moments.ts";

/** Records are copied in a form that PostgreSQL accepts, so that no row stops the others. */

/** U+0000 and halves of surrogate pairs become U+FFFD: no text of PostgreSQL has them. */
export const archivableText = (text: string): string => text.toWellFormed().replaceAll("\0", "\uFFFD");

/** The nearest time from 1970 to 9999, Unix ms; undefined for invalid values. */
export function archivableMs(ms: string | number | undefined): number | undefined {
  const atMs = ms === undefined || ms === "" ? Number.NaN : Number(ms);
  return Number.isNaN(atMs) ? undefined : Math.min(Math.max(atMs, 0), MOMENT_MS_MAX);
}

export const jsonOf = (value: unknown): string =>
  JSON.stringify(value, (_, item: unknown) => {
    if (typeof item === "string") return archivableText(item);
    if (typeof item !== "object" || item === null || Array.isArray(item)) return item;
    return Object.fromEntries(Object.entries(item).map(([name, one]) => [archivableText(name), one]));
  });
