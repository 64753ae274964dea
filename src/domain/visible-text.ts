/** Control characters with C1, and characters that reorder, break or hide text. Unicode Technical Report 36, section 2. */
const UNSEEN = /[\p{Cc}\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/gu;

/** Escaped, such as `\u001b`. JSON stays the same JSON. */
export const visible = (text: string): string =>
  text.replace(UNSEEN, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);

export const capitalized = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

/** Escapes as `visible` does, but keeps line breaks. */
export const visibleLines = (text: string): string => text.split("\n").map(visible).join("\n");
