import { once } from "node:events";
import { type IncomingMessage, request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";

const ANSWER_TIMEOUT_MS = 2_000;

interface Answering {
  /** With the scheme that the port speaks; without TLS where nothing answers. */
  url: string;
  /** HTTP status; undefined where nothing answers. */
  status: number | undefined;
  /** Why there is no status. */
  why: string;
}

/**
 * Asks a port of the gateway that this process has started, over TLS if it does not speak plain HTTP.
 * @param place host and port
 */
export async function answeringAt(
  place: string,
  path: string,
  headers: Record<string, string> = {},
): Promise<Answering> {
  const plain = await statusOf(`http://${place}`, path, headers);
  if (plain.status !== undefined || plain.why === "ECONNREFUSED") return plain;
  const secure = await statusOf(`https://${place}`, path, headers);
  // With server.tls.client_ca the handshake ends with one of OpenSSL's alerts.
  const wantsCertificate =
    secure.why.includes("CERTIFICATE_REQUIRED") || secure.why.includes("HANDSHAKE_FAILURE");
  if (wantsCertificate)
    throw new Error(`${place} asks for a client certificate: start without client_ca here.`);
  return secure.status === undefined ? plain : secure;
}

/** The status of GET. */
async function statusOf(url: string, path: string, headers: Record<string, string>): Promise<Answering> {
  try {
    return { url, status: await getUnverified(url + path, headers), why: "" };
  } catch (error) {
    return { url, status: undefined, why: (error as NodeJS.ErrnoException).code ?? (error as Error).message };
  }
}

/** GET without a look at the certificate: it is made for the name that customers use, and this is an address. */
async function getUnverified(url: string, headers: Record<string, string>): Promise<number> {
  const options = { headers, agent: false, signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS) } as const;
  const sent = url.startsWith("https:")
    ? requestHttps(url, { ...options, rejectUnauthorized: false })
    : requestHttp(url, options);
  sent.end();
  const [answer] = (await once(sent, "response")) as [IncomingMessage];
  sent.on("error", () => undefined).destroy();
  return answer.statusCode!;
}
