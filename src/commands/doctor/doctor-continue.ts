import { request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";
import { type GatewayIdentity, gatewayHeaders } from "../../upstream/gateway-headers.ts";
import { tlsOptions, type UpstreamTls } from "../../upstream/json-client.ts";

/** A path that takes no POST, so that nothing comes of it: no task is made, nothing is paid. */
const PATH = "/api/v1/tasks/tollgate-doctor";
const BODY = "{}";

/**
 * Whether the upstream sends `100 Continue` to a request that did not ask for it. The server, or a proxy before it, does so
 * for requests with a body before it looks at what is asked, so a POST to a path that takes none shows it. The gateway skips
 * it (decision 0003); advice all the same, since other clients end the connection.
 * @returns false also where there is no answer, which the other check tells
 */
export function sendsUnaskedContinue(
  upstream: { url: string } & GatewayIdentity & UpstreamTls,
  timeoutMs: number,
): Promise<boolean> {
  const { url } = upstream;
  const own = gatewayHeaders(upstream);
  const headers: Record<string, string> = {
    "content-type": "application/json",
    "content-length": String(BODY.length),
    accept: "application/json",
  };
  for (let at = 0; at < own.length; at += 2) headers[own[at]!] = own[at + 1]!;
  return new Promise((resolve) => {
    const options = { method: "POST", headers, agent: false } as const;
    const sent = url.startsWith("https:")
      ? requestHttps(url + PATH, { ...options, ...tlsOptions(upstream) })
      : requestHttp(url + PATH, options);
    const end = (found: boolean): void => {
      resolve(found);
      clearTimeout(deadline);
      sent.destroy();
    };
    const deadline = setTimeout(end, timeoutMs, false);
    sent.on("continue", () => end(true));
    sent.on("response", () => end(false));
    sent.on("error", () => end(false));
    sent.end(BODY);
  });
}
