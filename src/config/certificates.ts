import { X509Certificate } from "node:crypto";
import type { Config } from "./runtime-config.ts";

/** Settings that name files with certificates. */
export const CERTIFICATE_SETTINGS = [
  "server.tls.cert",
  "server.tls.client_ca",
  "admin.tls.cert",
  "admin.tls.client_ca",
  "store.tls_ca",
  "upstream.tls_ca",
] as const;
export type CertificateSetting = (typeof CERTIFICATE_SETTINGS)[number];

/** From when to when what a setting names can be used, Unix ms. */
export interface CertificateValidity {
  setting: CertificateSetting;
  fromMs: number;
  expiryMs: number;
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g;

/** The certificates of a configuration; settings that name none are left out. */
export function certificateValidities(
  config: Pick<Config, "server" | "admin" | "store" | "upstream">,
): CertificateValidity[] {
  const { server, admin, store, upstream } = config;
  return [
    chain("server.tls.cert", server.tls?.cert),
    authorities("server.tls.client_ca", server.tls?.clientCa),
    chain("admin.tls.cert", admin.tls?.cert),
    authorities("admin.tls.client_ca", admin.tls?.clientCa),
    authorities("store.tls_ca", store.tlsCa),
    authorities("upstream.tls_ca", upstream.tlsCa),
  ].filter((validity) => validity !== undefined);
}

/** A chain is as good as the certificate of it that expires first. */
function chain(setting: CertificateSetting, pem: string | undefined): CertificateValidity | undefined {
  const all = certificatesIn(pem);
  if (all.length === 0) return undefined;
  const fromMs = Math.max(...all.map(({ validFromDate }) => validFromDate.getTime()));
  return { setting, fromMs, expiryMs: Math.min(...all.map(({ validToDate }) => validToDate.getTime())) };
}

/** Of several authorities the old one may expire, once certificates are signed by the next. */
function authorities(setting: CertificateSetting, pem: string | undefined): CertificateValidity | undefined {
  const all = certificatesIn(pem);
  if (all.length === 0) return undefined;
  const fromMs = Math.min(...all.map(({ validFromDate }) => validFromDate.getTime()));
  return { setting, fromMs, expiryMs: Math.max(...all.map(({ validToDate }) => validToDate.getTime())) };
}

/** The configuration's check has read them all; what cannot be read here is no certificate. */
function certificatesIn(pem = ""): X509Certificate[] {
  return (pem.match(CERTIFICATE) ?? []).flatMap((text) => {
    try {
      return [new X509Certificate(text)];
    } catch {
      return [];
    }
  });
}
