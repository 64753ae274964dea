import { type CertificateValidity, certificateValidities } from "../../config/certificates.ts";
import type { Config } from "../../config/config.ts";
import { type Check, failed, good, warning } from "./doctor-check.ts";

const NAME = "certificates";
const DAY_MS = 86_400_000;
/** As the alert TollgateCertificateExpires. */
const WARNING_MS = 14 * DAY_MS;

/** When the certificates that the configuration names expire. */
export function certificatesCheck(config: Config, nowMs: number): Check {
  const all = certificateValidities(config);
  const first = all.toSorted((a, b) => a.expiryMs - b.expiryMs)[0];
  if (!first) return good(NAME, "the config names none");
  const future = all.filter(({ fromMs }) => fromMs > nowMs);
  const due = all.filter(({ expiryMs }) => expiryMs < nowMs + WARNING_MS);
  if (future.length === 0 && due.length === 0) return good(NAME, `valid; first ${expires(first, nowMs)}`);
  const found = [
    ...due.map((one) => expires(one, nowMs)),
    ...future.map(({ setting, fromMs }) => `${setting} is not valid before ${dayOf(fromMs)}`),
  ].join("\n");
  const advice =
    "renew it, and put the new file at the same place: a running gateway takes it without a restart (store.tls_ca needs one)";
  const unusable = future.length > 0 || first.expiryMs <= nowMs;
  return unusable ? failed(NAME, found, advice) : warning(NAME, found, advice);
}

function expires({ setting, expiryMs }: CertificateValidity, nowMs: number): string {
  const days = Math.floor((expiryMs - nowMs) / DAY_MS);
  if (expiryMs <= nowMs) return `${setting} has expired on ${dayOf(expiryMs)}`;
  return `${setting} expires on ${dayOf(expiryMs)}, in ${days} days`;
}

const dayOf = (ms: number): string => new Date(ms).toISOString().slice(0, 10);
