import { X509Certificate } from "node:crypto";
import type { Config } from "./runtime-config.ts";

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

export function certificateIn(pem: string): X509Certificate | undefined {
  try {
    return new X509Certificate(pem);
  } catch {
    return undefined;
  }
}

export const pemCertificates = (text = ""): string[] =>
  text.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g) ?? [];
