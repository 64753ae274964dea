/** A shorter credential may well be a part of words that mean something else, as `task` is of `task_id`. */
const SHORT = 8;

/**
 * An upstream that repeats our credential in its words must not bring it to a customer or into the log.
 * @returns takes it out of an answer's text, in each way that JSON may write it; a credential of less than eight characters
 *   only where it stands alone
 */
export function withoutSecret(secret: string | undefined): (text: string) => string {
  if (secret === undefined) return (text) => text;
  const quoted = JSON.stringify(secret).slice(1, -1);
  // Some writers of JSON put a backslash before each slash, too.
  const forms = [...new Set([secret, quoted, quoted.replaceAll("/", "\\/")])];
  const sought = secret.length < SHORT ? forms.map(alone) : forms;
  return (text) => {
    for (const form of sought) text = text.replaceAll(form, "[redacted]");
    return text;
  };
}

/** Finds a text that is no part of a longer word. */
const alone = (form: string): RegExp => new RegExp(`(?<![\\w-])${RegExp.escape(form)}(?![\\w-])`, "g");
