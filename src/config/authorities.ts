import { X509Certificate } from "node:crypto";
import path from "node:path";
import { Pointer } from "typebox/value";
import type { FileReader } from "./document.ts";
import type { BrokenRule } from "./validate.ts";

/** Certificates, PEM, of the authorities that are trusted; undefined for those that Node trusts by itself. */
export interface Authorities {
  readonly store: string | undefined;
  readonly upstream: string | undefined;
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g;

/**
 * Reads the files that `store.tls_ca` and `upstream.tls_ca` name.
 * @param data the file's data with overrides and defaults, possibly invalid
 * @param file the config file: relative paths begin at its folder
 */
export function readAuthorities(
  data: unknown,
  file: string,
  read: FileReader,
): { authorities: Authorities; problems: BrokenRule[] } {
  const problems: BrokenRule[] = [];
  const of = (section: "store" | "upstream"): string | undefined => {
    const named = Pointer.Get(data, `/${section}/tls_ca`);
    if (typeof named !== "string" || named === "" || named.includes("\0")) return undefined;
    const certificates = path.resolve(path.dirname(file), named);
    try {
      return checkedPem(read(certificates).toString("utf8"));
    } catch (error) {
      problems.push({ keys: [section, "tls_ca"], message: `${certificates} ${inWords(error)}` });
      return undefined;
    }
  };
  return { authorities: { store: of("store"), upstream: of("upstream") }, problems };
}

class NoCertificates extends Error {}

/** @throws NoCertificates */
function checkedPem(text: string): string {
  const found = text.match(CERTIFICATE) ?? [];
  if (found.length === 0)
    throw new NoCertificates("holds no certificate; give a PEM file with -----BEGIN CERTIFICATE-----");
  for (const [at, pem] of found.entries()) {
    try {
      new X509Certificate(pem);
    } catch {
      throw new NoCertificates(`is damaged: certificate ${at + 1} of ${found.length} cannot be read`);
    }
  }
  return found.join("\n");
}

function inWords(error: unknown): string {
  if (error instanceof NoCertificates) return error.message;
  switch ((error as NodeJS.ErrnoException).code) {
    case "ENOENT":
      return "is not there; a relative path begins at the config file's folder";
    case "EACCES":
      return "may not be read by this user";
    case "EISDIR":
      return "is a folder; name the PEM file itself";
    default:
      return `cannot be read: ${(error as Error).message}`;
  }
}
