import { AddressRefusedError } from "./guarded-agent.ts";

const NO_ADDRESS = new Set([
  "ENOTFOUND",
  "ENODATA",
  "ESERVFAIL",
  "EREFUSED",
  "ETIMEOUT",
  "EBADRESP",
  "EBADNAME",
]);
const NO_CONNECTION = new Set(["UND_ERR_CONNECT_TIMEOUT", "ETIMEDOUT", "EHOSTUNREACH", "ENETUNREACH"]);
const CLOSED = new Set(["UND_ERR_SOCKET", "ECONNRESET", "EPIPE", "UND_ERR_PRX_CONN"]);
const CERTIFICATE =
  /^(CERT_|ERR_TLS_CERT|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO_|HOSTNAME_MISMATCH|INVALID_|CRL_|ERROR_IN_CERT)/;

/** Why there was no answer, as customers and operators see it. No address and no text of a library is in it. */
export function failureReason(error: Error & { code?: string }): string {
  if (error instanceof AddressRefusedError) return `the address ${error.message}`;
  const code = error.code ?? "";
  if (NO_ADDRESS.has(code)) return "no address was found for its name";
  if (code === "ECONNREFUSED") return "the connection was refused";
  if (NO_CONNECTION.has(code)) return "no connection could be made";
  if (CLOSED.has(code)) return "the connection was closed before an answer";
  if (CERTIFICATE.test(code)) return `its certificate is not valid (${code})`;
  if (/^(ERR_SSL|EPROTO)/.test(code)) return "TLS could not be agreed on";
  if (code === "UND_ERR_HEADERS_TIMEOUT") return "no answer in time";
  if (code === "UND_ERR_HEADERS_OVERFLOW") return "the headers of the answer are too large";
  if (error.name === "HTTPParserError" || /^HPE_/.test(code)) return "the answer is not HTTP/1.1";
  if (code === "UND_ERR_ABORTED" && /^Proxy response/.test(error.message))
    return "the egress proxy refused it";
  return code === "" ? "no answer" : `no answer (${code})`;
}
