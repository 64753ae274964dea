/** Keys and tokens, as far as they reach. */
const SECRET = /\b(sk|tgm)_[^\s"'`/?&,;]+/g;

/** A text in which no key or token stands: somebody may give one where an id belongs. */
export const withoutSecrets = (text: string): string => text.replace(SECRET, "$1_…");
