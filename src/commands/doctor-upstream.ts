import type { Config } from "../config/config.ts";
import { parseObject } from "../core/json.ts";
import { createExchanger, type Exchanged } from "../upstream/exchange.ts";
import { type Check, failed, good, warning } from "./doctor-check.ts";
import { sendsUnaskedContinue } from "./doctor-continue.ts";

const NAME = "upstream";
const TIMEOUT_MS = 3000;
/** A task that nobody has: asking for it costs nothing and changes nothing. */
const NO_TASK = "tollgate-doctor";

/**
 * The generator: reachable, speaking the envelope, and content with our credential.
 * @param upstream undefined when the config is not valid
 */
export async function upstreamCheck(upstream: Config["upstream"] | undefined): Promise<Check> {
  if (!upstream) return failed(NAME, "not looked for: the config is not valid", "mend the config first");
  const { url, apiKey, tlsCa } = upstream;
  const exchanger = createExchanger({
    url,
    apiKey,
    tlsCa,
    connectTimeoutMs: TIMEOUT_MS,
    headersTimeoutMs: TIMEOUT_MS,
    totalTimeoutMs: TIMEOUT_MS,
    connections: 1,
    keepAliveTimeoutMs: TIMEOUT_MS,
  });
  try {
    const unaskedContinue = sendsUnaskedContinue({ url, apiKey, tlsCa }, TIMEOUT_MS);
    const startedMs = performance.now();
    const exchanged = await exchanger.send({
      method: "GET",
      path: `/api/v1/tasks/${NO_TASK}`,
      headers: ["accept", "application/json"],
      body: null,
      owner: "doctor",
    });
    const tookMs = Math.round(performance.now() - startedMs);
    const { host } = new URL(url);
    return (await unaskedContinue) ? continuing(host) : judge(exchanged, host, tookMs);
  } finally {
    await exchanger.close();
  }
}

const continuing = (host: string): Check =>
  failed(
    NAME,
    `${host} sends \`100 Continue\` without being asked; every generation would break off after it was sent`,
    "turn that off in the service, or in the proxy before it: `100 Continue` is only for requests with `Expect: 100-continue`",
  );

/** What to do about a TLS connection that cannot be made; undefined for other troubles. */
function tlsAdvice(detail: string): string | undefined {
  if (/^(EPROTO|ERR_SSL)/.test(detail))
    return "it does not speak TLS at this port: use http://, or its TLS port";
  if (/^(DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT|UNABLE_TO_(VERIFY|GET_ISSUER))/.test(detail))
    return "name the file of your own authority in upstream.tls_ca";
  if (/^(CERT_|ERR_TLS)/.test(detail))
    return "see that its certificate is valid and has the name in UPSTREAM_URL";
  return undefined;
}

/** What the answer about a task that does not exist says of the upstream. Exported for a test of each row. */
export function judge(exchanged: Exchanged, host: string, tookMs: number): Check {
  if (exchanged.outcome === "unsent") {
    const tls = tlsAdvice(exchanged.detail);
    if (tls !== undefined) return failed(NAME, `${host} cannot be trusted (${exchanged.detail})`, tls);
    return failed(
      NAME,
      `${host} cannot be reached (${exchanged.detail})`,
      "start it, or set UPSTREAM_URL to where it is",
    );
  }
  if (exchanged.outcome === "lost") {
    return failed(
      NAME,
      `${host} takes connections, but gives no answer (${exchanged.detail})`,
      "look at its log; if another service listens there, set UPSTREAM_URL",
    );
  }
  const { status } = exchanged;
  const code = parseObject(exchanged.body)?.code;
  if (typeof code !== "number") {
    return failed(
      NAME,
      `${host} answers HTTP ${status}, but without the envelope's \`code\``,
      "this is no video generation service, or not its base address: set UPSTREAM_URL to what comes before /api/v1",
    );
  }
  if ([401, 402, 403, 407].some((refused) => refused === status || refused === code)) {
    return failed(
      NAME,
      `${host} refuses this gateway (HTTP ${status}, code ${code})`,
      "set UPSTREAM_API_KEY to a key that it takes, and see that its account is in order",
    );
  }
  if (status === 429 || code === 429 || status >= 500 || (code >= 500 && code < 600)) {
    return warning(
      NAME,
      `${host} answers HTTP ${status}, code ${code}`,
      "it is busy or ill; look again in a minute",
    );
  }
  return good(NAME, `${host} speaks the envelope, in ${tookMs} ms`);
}
