import { distance } from "fastest-levenshtein";
import type { TLocalizedValidationError } from "typebox/error";
import type { Problem } from "./errors.ts";
import { TIME_RULE } from "./moments.ts";
import { PATTERNS_IN_WORDS } from "./operator-texts.ts";

export const DETAILS_MAX = 20;
const SHOWN_CHARS_MAX = 100;

export const shown = (foreign: string): string => foreign.slice(0, SHOWN_CHARS_MAX).toWellFormed();

export function problemsOf(errors: readonly TLocalizedValidationError[]): Problem[] {
  const anyOf = new Set(errors.filter((e) => e.keyword === "anyOf").map((e) => e.instancePath));
  return errors.flatMap((error) =>
    error.keyword === "const" && anyOf.has(error.instancePath) ? [] : inWords(error),
  );
}

export function unknownName(path: string, name: string, known: readonly string[]): Problem {
  const meant = nearest(name, known);
  return problem(
    path,
    name,
    `is not a known parameter${meant === undefined ? "" : `; did you mean ${meant}?`}`,
  );
}

const FORMATS: Readonly<Record<string, string>> = {
  "https-url": "an https URL with a valid host and port",
  "web-url": "an http or https URL with a valid host and port",
  date: "a day such as 2026-10-31",
  "date-time": TIME_RULE,
};

function inWords(error: TLocalizedValidationError): Problem[] {
  const path = error.instancePath;
  const one = (rule: string): Problem[] => [{ path, message: `${nameOf(path)} ${rule}` }];
  switch (error.keyword) {
    case "required":
      return error.params.requiredProperties.map((name) => problem(path, name, "is required"));
    case "type":
      return one(`must be ${[error.params.type].flat().map(article).join(" or ")}`);
    case "enum":
      return one(
        `must be one of ${error.params.allowedValues.map((value) => JSON.stringify(value)).join(", ")}`,
      );
    case "minLength":
      return one(
        error.params.limit === 1
          ? "must not be empty"
          : `must have at least ${error.params.limit} characters`,
      );
    case "maxLength":
      return one(`must have at most ${error.params.limit} characters`);
    case "minProperties":
      return one(`must have at least ${counted(error.params.limit, "member")}`);
    case "pattern":
      return one(PATTERNS_IN_WORDS[String(error.params.pattern)] ?? error.message);
    case "minItems":
      return one(`must have at least ${counted(error.params.limit, "item")}`);
    case "maxItems":
      return one(`must have at most ${error.params.limit} items`);
    case "minimum":
      return one(`must be at least ${error.params.limit}`);
    case "maximum":
      return one(`must be at most ${error.params.limit}`);
    case "exclusiveMinimum":
      return one(`must be greater than ${error.params.limit}`);
    case "format":
      return one(`must be ${FORMATS[error.params.format] ?? `a ${error.params.format}`}`);
    default:
      return one(error.message);
  }
}

const counted = (count: number, what: string): string => `${count} ${count === 1 ? what : `${what}s`}`;

function problem(path: string, name: string, rule: string): Problem {
  return {
    path: path + pointerTo(name),
    message: `${path === "" ? "" : `${nameOf(path)}.`}${shown(name)} ${rule}`,
  };
}

/** RFC 6901. */
export const pointerTo = (name: string): string =>
  `/${shown(name).replaceAll("~", "~0").replaceAll("/", "~1")}`;

/** `/shots/0/duration` becomes `shots[0].duration`. */
export function nameOf(pointer: string): string {
  if (pointer === "") return "the body";
  return pointer
    .slice(1)
    .split("/")
    .map((part, at) => (/^\d+$/.test(part) ? `[${part}]` : at === 0 ? part : `.${part}`))
    .join("");
}

const article = (type: string): string =>
  type === "null" ? type : `${/^[aeiou]/.test(type) ? "an" : "a"} ${type}`;

/** The work grows with the square of the length. */
const WORD_CHARS_MAX = 64;

/** At most 2 edits apart, or a third of its length; case, `_` and `-` do not count. The first of equally near ones wins. */
export function nearest(word: string, known: readonly string[]): string | undefined {
  if (word.length > WORD_CHARS_MAX || /^\d*$/.test(word)) return undefined;
  const written = plain(word);
  let best: string | undefined;
  let bestEdits = Math.max(2, Math.floor(written.length / 3)) + 1;
  for (const name of known) {
    if (name.length > WORD_CHARS_MAX) continue;
    const edits = distance(written, plain(name));
    // As many edits as letters: nothing in common.
    if (edits < bestEdits && edits < written.length) {
      best = name;
      bestEdits = edits;
    }
  }
  return best;
}

function plain(name: string): string {
  return name.toLowerCase().replaceAll(/[_-]/g, "");
}
