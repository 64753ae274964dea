import { distance } from "fastest-levenshtein";

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
