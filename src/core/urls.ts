/** White space, control characters and backslashes, which `new URL` would quietly repair. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for.
const REPAIRED = /[\u0000-\u0020\u007f\\]/;

/** A well-formed http(s) URL, taken literally: nothing that a parser would first have to mend. */
export function isWebUrl(text: string): boolean {
  return /^https?:\/\/[^/?#]/i.test(text) && !REPAIRED.test(text) && URL.canParse(text);
}

/** The same, https only. Spec 4.4. */
export function isHttpsUrl(text: string): boolean {
  return /^https:/i.test(text) && isWebUrl(text);
}

/**
 * A URL on the one supported source host: the raw prefix and the parsed origin must both agree, so neither a
 * look-alike host nor a repaired URL passes. Spec 4.7.
 * @param sourceHost origin without a trailing slash, from the config
 */
export function isOnSourceHost(text: string, sourceHost: string): boolean {
  return (
    text.startsWith(`${sourceHost}/`) && isWebUrl(text) && new URL(text).origin === new URL(sourceHost).origin
  );
}
