import { orNull } from "./operation-command.ts";
import { whole } from "./options.ts";

/** What each limit counts, and the numbers that it may be. */
export const LIMITS = {
  "rate-limit": { parse: whole(1, 100_000), counts: ["requests", "per rolling 60 seconds"] },
  "max-concurrent": { parse: whole(1, 10_000), counts: ["tasks", "at the same time"] },
  "daily-limit": { parse: whole(1, 1_000_000_000), counts: ["requests", "per UTC day"] },
} as const;

/** Options that set limits. @param word takes a limit away @param whose whose requests and tasks count */
export const limitOptions = (word: string, whose = "") =>
  Object.fromEntries(
    Object.entries(LIMITS).map(
      ([
        name,
        {
          parse,
          counts: [what, when],
        },
      ]) => [`--${name} <n|${word}>`, { about: `${what}${whose} ${when}`, parse: orNull(word, parse) }],
    ),
  );
