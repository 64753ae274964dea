const LABEL_CHARS_MAX = 100;
const METADATA_BYTES_MAX = 4096;
const METADATA_NAMES_MAX = 50;

/** No control characters, and none that turn or isolate the direction of what a page or a file has behind them. Unicode Standard Annex 9. */
const LINE = /^[^\p{Cc}\p{Zl}\p{Zp}\u202a-\u202e\u2066-\u2069]+$/u;

/** U+0000 or half of a surrogate pair, as `JSON.stringify` escapes them. */
const UNSTORABLE = /(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f])/;

export type Metadata = Readonly<Record<string, unknown>>;

/** One line of 1 to so many characters, not all of them spaces. */
export const isLine = (text: string, charsMax: number): boolean =>
  LINE.test(text) && text.trim() !== "" && text.isWellFormed() && [...text].length <= charsMax;

export const labelProblem = (label: string): string | undefined =>
  isLine(label, LABEL_CHARS_MAX)
    ? undefined
    : `a label has 1 to ${LABEL_CHARS_MAX} characters on one line, without those that turn its direction`;

export function metadataProblem(metadata: Metadata): string | undefined {
  const isObject = typeof metadata === "object" && metadata !== null && !Array.isArray(metadata);
  if (!isObject) return "metadata is a JSON object";
  const text = JSON.stringify(metadata);
  // Valid JSON, but no database takes it.
  if (UNSTORABLE.test(text)) return "metadata has no character U+0000 and no half of a surrogate pair";
  if (hasInexactNumber(metadata))
    return "metadata has no number beyond 2^53 - 1, which would be rounded; write a longer one as a text";
  if (Object.keys(metadata).length > METADATA_NAMES_MAX)
    return `metadata has at most ${METADATA_NAMES_MAX} names`;
  const bytes = Buffer.byteLength(text);
  return bytes <= METADATA_BYTES_MAX ? undefined : `metadata has at most ${METADATA_BYTES_MAX} bytes`;
}

/** True for numbers that JSON.parse has rounded, or may have. */
function hasInexactNumber(value: unknown): boolean {
  if (typeof value === "number") return Math.abs(value) > Number.MAX_SAFE_INTEGER;
  return typeof value === "object" && value !== null && Object.values(value).some(hasInexactNumber);
}

export const ACCOUNT_ID = /^[A-Za-z0-9_.-]{1,64}$/;
/** Clients remove `.` and `..` from a path. RFC 3986 section 5.2.4. */
export const NEW_ACCOUNT_ID = /^(?!\.{1,2}$)[A-Za-z0-9_.-]{1,64}$/;
export const CURRENCY = /^[A-Z]{3}$/;
export const OVERLAP = /^\d{1,6}(s|m|h|d)$/;

export const PATTERNS_IN_WORDS: Readonly<Record<string, string>> = {
  [ACCOUNT_ID.source]: "must have 1 to 64 characters of A-Z, a-z, 0-9, _, . and -",
  [NEW_ACCOUNT_ID.source]: "must have 1 to 64 characters of A-Z, a-z, 0-9, _, . and -, and not be . or ..",
  [CURRENCY.source]: "must be a currency of ISO 4217 such as USD",
  [OVERLAP.source]: "must be a duration such as 90s, 30m, 24h or 7d",
};

/** Control characters with C1, and characters that reorder, break or hide text. Unicode Technical Report 36, section 2. */
const UNSEEN = /[\p{Cc}\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/gu;

/** Escaped, such as `\u001b`. JSON stays the same JSON. */
export const visible = (text: string): string =>
  text.replace(UNSEEN, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** Keys that were taken over may have any visible character but a comma. A semicolon at the end belongs to the text. */
const SECRET = /\b(sk|tgm)_[^\s,]{3,}[^\s,;]/g;

/** Without API keys and tokens: somebody may give one where an id belongs, and errors end up in logs and tickets. */
export const withoutSecrets = (text: string): string => text.replace(SECRET, "$1_…");

export const capitalized = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

export const visibleLines = (text: string): string => text.split("\n").map(visible).join("\n");

/** For programs without arguments: an ignored option would look effective. @returns the message; undefined without arguments */
export function refusedArguments(words: readonly string[], program: string): string | undefined {
  if (words.length === 0) return undefined;
  return (
    `${program} takes no arguments, and was given: ${words.join(" ")}\n` +
    "Settings are in the config file (TOLLGATE_CONFIG) and the environment: docs/configuration.md. " +
    "Commands such as `keys create` are those of `node src/cli.ts`: docs/cli.md.\n"
  );
}

export const csvLine = (cells: readonly (string | number | null)[]): string =>
  `${cells.map(csvCell).join(",")}\r\n`;

/** Where a spreadsheet may take what follows for a formula: at the beginning, and after what may end a cell. As in console/page/table.js. */
const FORMULA = /(^|[;\t\r\n])(?=[" \u00a0]{0,20}[=+\-@＝＋－＠])/g;

/** A text is quoted, and an apostrophe leads what could be a formula. A value that is not known is empty. */
function csvCell(value: string | number | null): string {
  if (value === null || value === "") return "";
  if (typeof value === "number") return String(value);
  const lead = /^[\t\r\n]/.test(value) ? "'" : "";
  return `"${lead}${value.replace(FORMULA, "$1'").replaceAll('"', '""')}"`;
}
