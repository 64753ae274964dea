import { hash } from "node:crypto";

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
