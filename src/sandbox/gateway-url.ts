import { once } from "node:events";
import { type IncomingMessage, request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";

const ANSWER_TIMEOUT_MS = 2_000;

interface Answering {
  url: string;
  status: number | undefined;
  why: string;
}

export async function answeringAt(
  place: string,
  path: string,
  headers: Record<string, string> = {},
): Promise<Answering> {
  const plain = await statusOf(`http://${place}`, path, headers);
  if (plain.status !== undefined || plain.why === "ECONNREFUSED") return plain;
  const secure = await statusOf(`https://${place}`, path, headers);
  // With server.tls.client_ca the handshake ends with an alert.
  const wantsCertificate =
    secure.why.includes("CERTIFICATE_REQUIRED") || secure.why.includes("HANDSHAKE_FAILURE");
  if (wantsCertificate)
    throw new Error(`${place} asks for a client certificate: start without client_ca here.`);
  return secure.status === undefined ? plain : secure;
}

async function statusOf(url: string, path: string, headers: Record<string, string>): Promise<Answering> {
  try {
    return { url, status: await getUnverified(url + path, headers), why: "" };
  } catch (error) {
    return { url, status: undefined, why: (error as NodeJS.ErrnoException).code ?? (error as Error).message };
  }
}

/** The certificate is for another name. */
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
