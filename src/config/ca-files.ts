import { X509Certificate } from "node:crypto";
import path from "node:path";
import { Pointer } from "typebox/value";
import { pemCertificates } from "./certificates.ts";
import type { BrokenRule } from "./validate.ts";
import type { FileReader } from "./yaml-file.ts";

/** Undefined: the certificates that Node trusts. */
export interface Authorities {
  readonly store: string | undefined;
  readonly upstream: string | undefined;
}

/** Reads the files of `store.tls_ca` and `upstream.tls_ca`, relative to the config file. Data may be invalid. */
export function readAuthorities(
  data: unknown,
  file: string,
  read: FileReader,
): { authorities: Authorities; problems: BrokenRule[] } {
  const problems: BrokenRule[] = [];
  const readSection = (section: "store" | "upstream"): string | undefined => {
    const named = Pointer.Get(data, `/${section}/tls_ca`);
    if (typeof named !== "string" || named === "" || named.includes("\0")) return undefined;
    const caFile = path.resolve(path.dirname(file), named);
    const blame = (message: string): undefined => {
      problems.push({ keys: [section, "tls_ca"], message: `${caFile} ${message}` });
    };
    try {
      const found = pemCertificates(read(caFile).toString("utf8"));
      if (found.length === 0)
        return blame("holds no certificate; give a PEM file with -----BEGIN CERTIFICATE-----");
      const damaged = found.findIndex(isDamaged);
      if (damaged < 0) return found.join("\n");
      return blame(`is damaged: certificate ${damaged + 1} of ${found.length} cannot be read`);
    } catch (error) {
      return blame(describeFailure(error));
    }
  };
  return { authorities: { store: readSection("store"), upstream: readSection("upstream") }, problems };
}

function isDamaged(pem: string): boolean {
  try {
    new X509Certificate(pem);
    return false;
  } catch {
    return true;
  }
}

function describeFailure(error: unknown): string {
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
