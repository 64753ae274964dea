import { createPrivateKey, X509Certificate } from "node:crypto";
import path from "node:path";
import { createSecureContext } from "node:tls";
import { Pointer } from "typebox/value";
import type { Config } from "./runtime-config.ts";
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
  if (!names) return { material: undefined, problems: [] };
  const { pem, pair, blame, problems } = pemFiles([listener, "tls"], names, folder, read);
  const clientCa = names.client_ca === undefined ? undefined : pem("client_ca");
  if (clientCa !== undefined && !certificateIn(clientCa)) blame("client_ca", NO_CERTIFICATE);
  const own = pair("cert", "key");
  if (!own) return { material: undefined, problems };
  try {
    createSecureContext({ ...own, ...(clientCa === undefined ? {} : { ca: clientCa }) });
  } catch (error) {
    blame("cert", `cannot be used for TLS: ${(error as Error).message}`);
  }
  return { material: { ...own, clientCa }, problems };
}

/** The gateway's own certificate for its upstream; undefined if there is none. */
export function readClientCertificate(
  { upstream: { tls_cert, tls_key } }: Settings,
  folder: string,
  read: FileReader,
): { certificate: { cert: string; key: string } | undefined; problems: BrokenRule[] } {
  const { pair, problems } = pemFiles(["upstream"], { tls_cert, tls_key }, folder, read);
  const certificate = tls_cert === "" && tls_key === "" ? undefined : pair("tls_cert", "tls_key");
  return { certificate, problems };
}

/** Undefined: the certificates that Node trusts. */
export type Authorities = Readonly<Record<"store" | "upstream", string | undefined>>;

/** Reads the files of `store.tls_ca` and `upstream.tls_ca`. Data may be invalid. */
export function readAuthorities(
  data: unknown,
  folder: string,
  read: FileReader,
): { authorities: Authorities; problems: BrokenRule[] } {
  const problems: BrokenRule[] = [];
  const authoritiesOf = (section: keyof Authorities): string | undefined => {
    const named = Pointer.Get(data, `/${section}/tls_ca`);
    if (typeof named !== "string" || named === "" || named.includes("\0")) return undefined;
    const files = pemFiles([section], { tls_ca: path.resolve(folder, named) }, folder, read);
    const text = files.pem("tls_ca");
    const found = pemCertificates(text);
    const damaged = found.findIndex((pem) => !certificateIn(pem));
    if (text !== undefined && found.length === 0)
      files.blame("tls_ca", "holds no certificate; give a PEM file with -----BEGIN CERTIFICATE-----");
    if (damaged >= 0)
      files.blame("tls_ca", `is damaged: certificate ${damaged + 1} of ${found.length} cannot be read`);
    problems.push(...files.problems);
    return files.problems.length > 0 ? undefined : found.join("\n");
  };
  return { authorities: { store: authoritiesOf("store"), upstream: authoritiesOf("upstream") }, problems };
}

const NO_CERTIFICATE = "holds no certificate in PEM";

function pemFiles<Setting extends string>(
  keys: readonly string[],
  names: { readonly [Name in Setting]?: string },
  folder: string,
  read: FileReader,
) {
  const problems: BrokenRule[] = [];
  function blame(setting: Setting, message: string): undefined {
    problems.push({ keys: [...keys, setting], message: `${names[setting]} ${message}`.trim() });
  }
  function pem(setting: Setting): string | undefined {
    const name = names[setting];
    if (!name) return blame(setting, "is missing: tls_cert and tls_key belong together");
    try {
      return read(path.resolve(folder, name)).toString("latin1");
    } catch (error) {
      const why = `cannot be read: ${readFailure(error)}`;
      return blame(setting, `${why}; a relative path begins at the config file's folder`);
    }
  }
  function pair(certSetting: Setting, keySetting: Setting): { cert: string; key: string } | undefined {
    const [cert, key] = [pem(certSetting), pem(keySetting)];
    const certificate = cert === undefined ? undefined : certificateIn(cert);
    if (cert !== undefined && !certificate) blame(certSetting, NO_CERTIFICATE);
    const problem = key === undefined ? undefined : keyProblem(key, certificate, names[certSetting] ?? "");
    if (problem !== undefined) blame(keySetting, problem);
    return cert !== undefined && key !== undefined && problems.length === 0 ? { cert, key } : undefined;
  }
  return { problems, blame, pem, pair };
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

export const CERTIFICATE_SETTINGS = [
  "server.tls.cert",
  "server.tls.client_ca",
  "admin.tls.cert",
  "admin.tls.client_ca",
  "store.tls_ca",
  "upstream.tls_ca",
  "upstream.tls_cert",
] as const;
type CertificateSetting = (typeof CERTIFICATE_SETTINGS)[number];

export interface CertificateValidity {
  setting: CertificateSetting;
  fromMs: number;
  expiryMs: number;
}

export function certificateValidities({
  server,
  admin,
  store,
  upstream,
}: Pick<Config, "server" | "admin" | "store" | "upstream">): CertificateValidity[] {
  const pem: Record<CertificateSetting, string | undefined> = {
    "server.tls.cert": server.tls?.cert,
    "server.tls.client_ca": server.tls?.clientCa,
    "admin.tls.cert": admin.tls?.cert,
    "admin.tls.client_ca": admin.tls?.clientCa,
    "store.tls_ca": store.tlsCa,
    "upstream.tls_ca": upstream.tlsCa,
    "upstream.tls_cert": upstream.tlsCert,
  };
  return CERTIFICATE_SETTINGS.flatMap((setting) => validityOf(setting, pem[setting]) ?? []);
}

/** A chain is valid while all certificates are; of several authorities one is enough. */
function validityOf(setting: CertificateSetting, pem: string | undefined): CertificateValidity | undefined {
  const all = pemCertificates(pem).flatMap((text) => certificateIn(text) ?? []);
  if (all.length === 0) return undefined;
  const starts = all.map(({ validFromDate }) => validFromDate.getTime());
  const ends = all.map(({ validToDate }) => validToDate.getTime());
  return /[._]cert$/.test(setting)
    ? { setting, fromMs: Math.max(...starts), expiryMs: Math.min(...ends) }
    : { setting, fromMs: Math.min(...starts), expiryMs: Math.max(...ends) };
}

function certificateIn(pem: string): X509Certificate | undefined {
  try {
    return new X509Certificate(pem);
  } catch {
    return undefined;
  }
}

const pemCertificates = (text = ""): string[] =>
  text.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g) ?? [];
