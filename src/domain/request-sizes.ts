export const HEADERS_BYTES_MAX = 16 * 1024;

export const JSON_BODY_BYTES_MAX = 256 * 1024;

/** The API's deepest body has three. */
export const JSON_DEPTH_MAX = 32;

/** The API's largest body has some 400. */
export const JSON_VALUES_MAX = 2000;

export const LIST_ITEMS_MAX = 100;

/** Where the API names no maximum. */
export const TEXT_CHARS_MAX = 10_000;

export const FILE_BYTES_MAX = 10_485_760;

export const IDEMPOTENCY_KEY = /^[\x21-\x7e]{1,255}$/;

/** RFC 9110 section 8.4. */
export const isIdentity = (contentEncoding: string | undefined): boolean =>
  contentEncoding === undefined || contentEncoding.toLowerCase() === "identity";
