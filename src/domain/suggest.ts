import { distance } from "fastest-levenshtein";

/** Longer words are not compared: the work grows with the square of the length. */
const WORD_CHARS_MAX = 64;

/**
 * The known name that a misspelt one most likely meant, if any is near enough: at most 2 edits apart, or a third
 * of the word's length. Letter case, `_` and `-` do not count, so `negative_prompt` finds `negativePrompt`.
 * @param word what was written; undefined is answered for numbers and for words over 64 characters
 * @param known the names that would be accepted; the first of equally near ones wins
 */
export function nearest(word: string, known: readonly string[]): string | undefined {
  // Another number is not a misspelling.
  if (word.length > WORD_CHARS_MAX || /^\d*$/.test(word)) return undefined;
  const written = plain(word);
  let best: string | undefined;
  let bestEdits = Math.max(2, Math.floor(written.length / 3)) + 1;
  for (const name of known) {
    if (name.length > WORD_CHARS_MAX) continue;
    const edits = distance(written, plain(name));
    // As many edits as letters means that the two have nothing in common.
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
