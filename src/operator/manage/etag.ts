import { Problem } from "./problems.ts";

/** No object has it: the entity tag is none of ours, so it matches nothing. */
const NEVER = -1;

/** The entity tag of a stored revision. RFC 9110 section 8.8.3. */
export const etagOf = (revision: number): string => `"${revision}"`;

/**
 * The revision that an `If-Match` header asks for; undefined without one and for `*`. RFC 9110 section 13.1.1.
 * @throws Problem for a list of tags: an object has one
 */
export function revisionOf(ifMatch: string | undefined): number | undefined {
  if (ifMatch === undefined || ifMatch.trim() === "*") return undefined;
  const tag = ifMatch.trim();
  if (!/^(W\/)?"[^"]*"$/.test(tag)) {
    const message = "If-Match must be one entity tag as an ETag header had it, with its quotes";
    throw new Problem("invalid", message, { errors: [{ path: "If-Match", message }] });
  }
  const revision = /^"(\d{1,15})"$/.exec(tag)?.[1];
  return revision === undefined ? NEVER : Number(revision);
}
