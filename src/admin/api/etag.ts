import { Problem } from "./problems.ts";

/** No object has it: the entity tag is none of ours, so it matches nothing. */
const NEVER = -1;
const TAGS_MAX = 20;

/** Entity tags with commas, RFC 9110 section 5.6.1: empty elements are legal. */
const LIST = /^(?:[\s,]*(?:W\/)?"[^"]*"\s*(?=,|$))+[\s,]*$/;
const TAG = /(?:W\/)?"[^"]*"/g;
/**
 * One of ours, also as a proxy that compresses sends it on: weak, or with the name of the coding. A revision names all of an object, so
 * it is as good as a strong one.
 */
const OWN_TAG = /^(?:W\/)?"(\d{1,15})(?:[-;:]{1,2}(?:gzip|br|deflate|zstd|df))?"$/;

/** The entity tag of a stored revision. */
export const etagOf = (revision: number): string => `"${revision}"`;

/**
 * The revisions that an `If-Match` header asks for, of which an object must have one; undefined without one and for `*`. RFC 9110
 * section 13.1.1.
 * @throws Problem for what is no list of entity tags
 */
export function revisionsOf(ifMatch: string | undefined): number[] | undefined {
  if (ifMatch === undefined || ifMatch.trim() === "*") return undefined;
  const tags = LIST.test(ifMatch) ? (ifMatch.match(TAG) ?? []) : [];
  if (tags.length === 0 || tags.length > TAGS_MAX) {
    const message = `If-Match must have 1 to ${TAGS_MAX} entity tags as ETag headers had them, with their quotes`;
    throw new Problem("invalid", message, { errors: [{ path: "If-Match", message }] });
  }
  return tags.map((tag) => Number(OWN_TAG.exec(tag)?.[1] ?? NEVER));
}
