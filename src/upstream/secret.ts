/**
 * An upstream that repeats our credential in its words must not bring it to a customer or into the log.
 * @returns takes it out of an answer's text, in each way that JSON may write it
 */
export function withoutSecret(secret: string | undefined): (text: string) => string {
  if (secret === undefined) return (text) => text;
  const quoted = JSON.stringify(secret).slice(1, -1);
  // Some writers of JSON put a backslash before each slash, too.
  const forms = new Set([secret, quoted, quoted.replaceAll("/", "\\/")]);
  return (text) => {
    for (const form of forms) text = text.replaceAll(form, "[redacted]");
    return text;
  };
}
