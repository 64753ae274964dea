/** What one request may carry, independent of who sends it. */

/** Request line and header lines together. */
export const HEADERS_BYTES_MAX = 16 * 1024;

/** The JSON body of a generation. */
export const JSON_BODY_BYTES_MAX = 256 * 1024;

/** Levels of objects and arrays in JSON from outside; the API's deepest body has three. */
export const JSON_DEPTH_MAX = 32;

/** Values (objects, arrays, strings, numbers, ...) in a JSON body; the API's largest body has some 400. */
export const JSON_VALUES_MAX = 2000;

/** Shots of a storyboard, and its reference images. */
export const LIST_ITEMS_MAX = 100;

/** Code points of a prompt, negative prompt or scene where the API names no maximum. */
export const TEXT_CHARS_MAX = 10_000;

/** Largest file, inclusive. */
export const FILE_BYTES_MAX = 10_485_760;

/** An Idempotency-Key as it may be sent. */
export const IDEMPOTENCY_KEY = /^[\x21-\x7e]{1,255}$/;

/** True for a body that is not encoded, also with `Content-Encoding: identity`. RFC 9110 section 8.4. */
export const isIdentity = (contentEncoding: string | undefined): boolean =>
  contentEncoding === undefined || contentEncoding.toLowerCase() === "identity";
