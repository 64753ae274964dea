import { execFile } from "node:child_process";
import { rename } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);
export const OPENSSL = "/usr/bin/openssl";
const KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

/** Certificates as an operator makes them with openssl: an authority, and certificates of it for one name. */
export async function givenAuthority(folder: string, name: string) {
  const file = (of: string): string => join(folder, of);
  const openssl = (...args: string[]) => run(OPENSSL, args, { cwd: folder });
  await openssl(
    ...["req", "-x509", ...KEY, "-keyout", "ca.key", "-out", "ca.pem", "-days", "30"],
    ...["-subj", "/CN=Operators' authority"],
  );
  return {
    ca: file("ca.pem"),
    cert: file("cert.pem"),
    key: file("key.pem"),
    /** Puts a new pair where the old one is, one file after the other. @returns the certificate's serial number */
    async renew(days = 30): Promise<string> {
      await openssl(
        ...["req", ...KEY, "-keyout", "next.key", "-out", "next.csr", "-subj", `/CN=${name}`],
        ...["-addext", `subjectAltName=DNS:${name},DNS:localhost,IP:127.0.0.1`],
      );
      await openssl(
        ...["x509", "-req", "-in", "next.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"],
        ...["-copy_extensions", "copy", "-days", String(days), "-out", "next.pem"],
      );
      const { stdout } = await openssl("x509", "-in", "next.pem", "-noout", "-serial");
      await rename(file("next.pem"), file("cert.pem"));
      await rename(file("next.key"), file("key.pem"));
      return stdout.trim();
    },
    /** The serial number of the certificate that a listener shows, once openssl has verified it. */
    async shownAt(host: string): Promise<string> {
      const script = `"$0" s_client -connect "$1" -CAfile ca.pem -verify_return_error </dev/null | "$0" x509 -noout -serial`;
      const { stdout } = await run("sh", ["-c", script, OPENSSL, host], { cwd: folder });
      return stdout.trim();
    },
  };
}
