/** A shorter credential may well be a part of words that mean something else, as `task` is of `task_id`. */
const SHORT = 8;

/**
 * An upstream that repeats our credential in its words must not bring it to a customer or into the log.
 * @returns takes it out of an answer's text, in each way that JSON may write it; a credential of less than eight characters
 *   only where it stands alone
 */
export function withoutSecret(secret: string | undefined): (text: string) => string {
  if (secret === undefined) return (text) => text;
  const short = secret.length < SHORT;
  const spelled = [...secret].map(spellings).join("");
  const escaped = new RegExp(short ? `(?<![\\w\\\\-])${spelled}(?![\\w-])` : spelled, "g");
  return (text) => {
    // Mostly it is written as it is or not at all, which is found faster.
    if (!short && !text.includes("\\")) return text.replaceAll(secret, "[redacted]");
    return text.replaceAll(escaped, "[redacted]");
  };
}

/**
 * A character as JSON may write it: by its number, behind a backslash (some do so to each slash), as it is. RFC 8259 7. The
 * longer ones go first, or a half of one would be left.
 */
function spellings(char: string): string {
  const hex = char.charCodeAt(0).toString(16).padStart(4, "0");
  const number = `\\\\u${hex.replace(/[a-f]/g, "(?i:$&)")}`;
  const behind = [JSON.stringify(char).slice(1, -1), char === "/" ? "\\/" : char, char];
  return `(?:${[number, ...behind.map(RegExp.escape)].join("|")})`;
}
