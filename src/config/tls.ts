import { createPrivateKey, X509Certificate } from "node:crypto";
import path from "node:path";
import { createSecureContext } from "node:tls";
import type { Settings } from "./schema.ts";
import type { BrokenRule } from "./validate.ts";
import { type FileReader, readFailure } from "./yaml-file.ts";

export interface TlsMaterial {
  readonly cert: string;
  readonly key: string;
  readonly clientCa: string | undefined;
}

type Listener = "server" | "admin";
export type TlsFiles = Readonly<Record<Listener, TlsMaterial | undefined>>;
type FileSetting = "cert" | "key" | "client_ca";

/** Problems mean that the files must not be used. */
export function readTlsFiles(
  settings: Settings,
  folder: string,
  read: FileReader,
): { files: TlsFiles; problems: BrokenRule[] } {
  const server = readListener("server", settings, folder, read);
  const admin = readListener("admin", settings, folder, read);
  return {
    files: { server: server.material, admin: admin.material },
    problems: [...server.problems, ...admin.problems],
  };
}

function readListener(listener: Listener, settings: Settings, folder: string, read: FileReader) {
  const names = settings[listener].tls;
  const problems: BrokenRule[] = [];
  if (!names) return { material: undefined, problems };
  const blame = (setting: FileSetting, message: string): undefined => {
    problems.push({ keys: [listener, "tls", setting], message: `${names[setting]} ${message}` });
  };
  const pem = (setting: FileSetting): string | undefined => {
    try {
      return read(path.resolve(folder, names[setting]!)).toString("latin1");
    } catch (error) {
      return blame(
        setting,
        `cannot be read: ${readFailure(error)}; a relative path begins at the config file's folder`,
      );
    }
  };
  const [cert, key] = [pem("cert"), pem("key")];
  const clientCa = names.client_ca === undefined ? undefined : pem("client_ca");
  const certificate = cert === undefined ? undefined : certificateIn(cert);
  if (cert !== undefined && !certificate) blame("cert", "holds no certificate in PEM");
  if (clientCa !== undefined && !certificateIn(clientCa)) blame("client_ca", "holds no certificate in PEM");
  if (key !== undefined) {
    const problem = keyProblem(key, certificate, names.cert);
    if (problem !== undefined) blame("key", problem);
  }
  if (cert === undefined || key === undefined || problems.length > 0)
    return { material: undefined, problems };
  const material = { cert, key, clientCa };
  try {
    createSecureContext({ cert, key, ...(clientCa === undefined ? {} : { ca: clientCa }) });
  } catch (error) {
    blame("cert", `cannot be used for TLS: ${(error as Error).message}`);
  }
  return { material, problems };
}

/** The gateway's own certificate for its upstream; undefined if there is none. */
export function readClientCertificate(
  { upstream }: Settings,
  folder: string,
  read: FileReader,
): { certificate: { cert: string; key: string } | undefined; problems: BrokenRule[] } {
  const names = { tls_cert: upstream.tls_cert, tls_key: upstream.tls_key };
  const problems: BrokenRule[] = [];
  const blame = (setting: keyof typeof names, message: string): undefined => {
    problems.push({ keys: ["upstream", setting], message: `${names[setting]} ${message}`.trim() });
  };
  if (names.tls_cert === "" && names.tls_key === "") return { certificate: undefined, problems };
  const pem = (setting: keyof typeof names): string | undefined => {
    if (names[setting] === "") return blame(setting, "is missing: tls_cert and tls_key belong together");
    try {
      return read(path.resolve(folder, names[setting])).toString("latin1");
    } catch (error) {
      const why = `cannot be read: ${readFailure(error)}`;
      return blame(setting, `${why}; a relative path begins at the config file's folder`);
    }
  };
  const [cert, key] = [pem("tls_cert"), pem("tls_key")];
  const certificate = cert === undefined ? undefined : certificateIn(cert);
  if (cert !== undefined && !certificate) blame("tls_cert", "holds no certificate in PEM");
  const problem = key === undefined ? undefined : keyProblem(key, certificate, names.tls_cert);
  if (problem !== undefined) blame("tls_key", problem);
  const isValid = cert !== undefined && key !== undefined && problems.length === 0;
  return { certificate: isValid ? { cert, key } : undefined, problems };
}

function certificateIn(pem: string): X509Certificate | undefined {
  try {
    return new X509Certificate(pem);
  } catch {
    return undefined;
  }
}

function keyProblem(pem: string, certificate: X509Certificate | undefined, cert: string): string | undefined {
  try {
    const key = createPrivateKey(pem);
    if (!certificate || certificate.checkPrivateKey(key)) return undefined;
    return `is not the key of the first certificate in ${cert}`;
  } catch {
    // OpenSSL's messages do not help an operator.
    if (pem.includes("ENCRYPTED")) return "is encrypted; a key without a passphrase is needed";
    return "holds no private key in PEM";
  }
}

export function describeCertificate({ cert }: TlsMaterial): string {
  const { subjectAltName, subject, validTo, fingerprint256 } = new X509Certificate(cert);
  return `${subjectAltName ?? subject}, valid until ${validTo}, SHA-256 ${fingerprint256}`;
}

export const sameMaterial = (a: TlsMaterial | undefined, b: TlsMaterial | undefined): boolean =>
  a?.cert === b?.cert && a?.key === b?.key && a?.clientCa === b?.clientCa;
