/** Texts that operators choose: labels, reasons, metadata. */

/** Characters of a label. */
export const LABEL_CHARS_MAX = 100;
/** Bytes of an account's metadata, as JSON. */
export const METADATA_BYTES_MAX = 4096;

/** One line without control characters, and not just spaces. */
const LABEL = new RegExp(String.raw`^(?=.*\S)[^\p{Cc}\p{Zl}\p{Zp}]{1,${LABEL_CHARS_MAX}}$`, "u");

/** What an account's `metadata` may be: any JSON object. */
export type Metadata = Readonly<Record<string, unknown>>;

/** What is wrong with a label; undefined if nothing is. */
export const labelProblem = (label: string): string | undefined =>
  LABEL.test(label) && label.isWellFormed()
    ? undefined
    : `a label has 1 to ${LABEL_CHARS_MAX} characters on one line`;

/** What is wrong with metadata; undefined if nothing is. */
export function metadataProblem(metadata: Metadata): string | undefined {
  const isObject = typeof metadata === "object" && metadata !== null && !Array.isArray(metadata);
  if (!isObject) return "metadata is a JSON object";
  const bytes = Buffer.byteLength(JSON.stringify(metadata));
  return bytes <= METADATA_BYTES_MAX ? undefined : `metadata has at most ${METADATA_BYTES_MAX} bytes`;
}
