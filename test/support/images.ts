import type { ImageType } from "../../src/upstream/upload-form.ts";

/** Real pictures of one pixel. */
const PIXELS: Readonly<Record<ImageType, string>> = {
  "image/jpeg":
    "/9j/4AAQSkZJRgABAQEAYABgAAD/2wBDAAgGBgcGBQgHBwcJCQgKDBQNDAsLDBkSEw8UHRofHh0aHBwgJC4nICIsIxwcKDcpLDAxNDQ0" +
    "Hyc5PTgyPC4zNDL/wAALCAABAAEBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAACf/EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQEAAD8A" +
    "Kp//2Q==",
  "image/png":
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
  "image/webp": "UklGRiIAAABXRUJQVlA4IBYAAAAwAQCdASoBAAEADsD+JaQAA3AAAAAA",
  "image/gif": "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7",
};

export const IMAGE_TYPES = Object.keys(PIXELS) as ImageType[];

/** A real picture of one pixel. */
export function tinyImage(type: ImageType): Buffer {
  return Buffer.from(PIXELS[type], "base64");
}

/**
 * A file of exactly `bytes` bytes that begins like `type`; the rest repeats with a prime period and is full of
 * line ends and dashes, so that a chunk lost, doubled or cut at a false boundary shows.
 */
export function imageOfSize(type: ImageType, bytes: number): Buffer {
  const pattern = Buffer.alloc(65_521);
  for (let i = 0; i < pattern.length; i++)
    pattern[i] = i % 7 === 0 ? "\r\n--"[i % 4]!.charCodeAt(0) : (i * 31) & 0xff;
  const file = Buffer.alloc(bytes, pattern);
  tinyImage(type).copy(file, 0, 0, Math.min(16, bytes));
  return file;
}
