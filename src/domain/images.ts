export type ImageType = "image/jpeg" | "image/png" | "image/webp" | "image/gif";

export const MAGIC_BYTES = 12;

const NAMES: Readonly<Record<string, ImageType>> = {
  "image/jpeg": "image/jpeg",
  "image/jpg": "image/jpeg",
  "image/pjpeg": "image/jpeg",
  "image/x-jpeg": "image/jpeg",
  "image/x-jpg": "image/jpeg",
  "image/x-citrix-jpeg": "image/jpeg",
  "image/png": "image/png",
  "image/x-png": "image/png",
  "image/x-citrix-png": "image/png",
  "image/x-webp": "image/webp",
  "image/x-gif": "image/gif",
  "image/webp": "image/webp",
  "image/gif": "image/gif",
};

/** Clients' defaults for unknown types: curl, retrofit, S3. */
const CLAIMS_NOTHING = new Set(["application/octet-stream", "binary/octet-stream", "image/*", "*/*"]);

/** By the first `MAGIC_BYTES` bytes, whatever the name says. */
export function imageTypeOf(head: Uint8Array): ImageType | undefined {
  const text = String.fromCharCode(...head.subarray(0, MAGIC_BYTES));
  if (text.startsWith("\xff\xd8\xff")) return "image/jpeg";
  if (text.startsWith("\x89PNG\r\n\x1a\n")) return "image/png";
  if (text.startsWith("GIF87a") || text.startsWith("GIF89a")) return "image/gif";
  // RIFF is a family of formats.
  if (text.startsWith("RIFF") && text.startsWith("WEBP", 8)) return "image/webp";
  return undefined;
}

/** @param declared media type in lower case; undefined without Content-Type */
export function declaresImage(declared: string | undefined, actual: ImageType): boolean {
  if (declared === undefined || CLAIMS_NOTHING.has(declared)) return true;
  return Object.hasOwn(NAMES, declared) && NAMES[declared] === actual;
}
