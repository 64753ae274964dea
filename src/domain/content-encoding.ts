/** True for a body that is not encoded, also where a Content-Encoding header says just that. RFC 9110 section 8.4. */
export const isIdentity = (contentEncoding: string | undefined): boolean =>
  contentEncoding === undefined || contentEncoding.toLowerCase() === "identity";
