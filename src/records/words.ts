import { hash } from "node:crypto";

// The index of words, as lua/include/words.lua writes it.

const WORDS_MAX = 8;
const WORDS_OF_REFERENCE_MAX = 4;
const WORDS_OF_ACCOUNT_MAX = 64;
const WORDS_BYTES_MAX = 40;

const WORD = /[a-z0-9\u0080-\u{10ffff}]+/gu;

/** Of ASCII. */
export const lowerCase = (text: string): string => text.replace(/[A-Z]/g, (letter) => letter.toLowerCase());

const wordsOf = (text: string): string[] => lowerCase(text).match(WORD) ?? [];

/** The words of a text with a space between: what it is compared by. */
export const wordsText = (text: string): string => wordsOf(text).join(" ");

/** The beginning of a text that the index has: at most so many bytes, whole characters. */
export function listedPart(words: string): string {
  const bytes = Buffer.from(words);
  let end = Math.min(WORDS_BYTES_MAX, bytes.length);
  while (end > 0 && ((bytes[end] ?? 0) & 0xc0) === 0x80) end--;
  return bytes.toString("utf8", 0, end);
}

/** From each of its first words on. */
function wordPlaces(text: string, whose: string, wordsMax = WORDS_MAX): string[] {
  const words = wordsOf(text);
  return words.slice(0, wordsMax).map((_, at) => `${listedPart(words.slice(at).join(" "))}/${whose}`);
}

export const placesOfKey = (accountId: string, keyId: string, label: string | undefined): string[] =>
  label === undefined ? [] : wordPlaces(label, `${accountId}@${keyId}`);

export const placesOfReference = (accountId: string, reference: string): string[] =>
  reference.startsWith("key:")
    ? []
    : wordPlaces(reference, `${accountId}=${reference}`, WORDS_OF_REFERENCE_MAX);

export const searchedMetadata = (metadata: Readonly<Record<string, unknown>>): [string, string][] =>
  Object.entries(metadata).flatMap(([name, value]) => {
    const text = typeof value === "boolean" ? undefined : metadataText(value);
    return text === undefined ? [] : [[name, text]];
  });

export const placesOfAccount = (
  accountId: string,
  label: string | undefined,
  metadata: Readonly<Record<string, unknown>>,
): string[] =>
  [...(label === undefined ? [] : [label]), ...searchedMetadata(metadata).map(([, text]) => text)]
    .flatMap((text) => wordPlaces(text, accountId))
    .slice(0, WORDS_OF_ACCOUNT_MAX);

export interface Placed {
  accountId: string;
  keyId?: string;
  reference?: string;
}

export function readPlaced(place: string): Placed {
  const whose = place.slice(place.indexOf("/") + 1);
  const [, accountId = "", kind, rest = ""] = /^([^@=]*)(?:([@=])(.*))?$/s.exec(whose) ?? [];
  if (kind === "@") return { accountId, keyId: rest };
  return kind === "=" ? { accountId, reference: rest } : { accountId };
}

// The index of accounts by their metadata, as lua/include/metadata.lua writes it.

const INDEXED_NAME = /^[A-Za-z0-9_.-]+$/;

/** How a value is asked for; undefined for one that cannot be. */
export function metadataText(value: unknown): string | undefined {
  if (typeof value === "string") return value;
  return typeof value === "number" || typeof value === "boolean" ? String(value) : undefined;
}

/** Where accounts with this value are listed, without their ids. Two values may share it. */
export const metadataDigest = (name: string, text: string): string =>
  hash("sha1", `"${name}"${text}`).slice(0, 8);

export function metadataDigests(metadata: Readonly<Record<string, unknown>>): string[] {
  return Object.entries(metadata).flatMap(([name, value]) => {
    const text = metadataText(value);
    return text === undefined || !INDEXED_NAME.test(name) ? [] : [metadataDigest(name, text)];
  });
}
