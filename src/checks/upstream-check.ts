import { request as requestHttps } from "node:https";
import type { Config } from "../config/config.ts";
import { parseObject } from "../domain/json.ts";
import { ENVELOPE_CHOICE } from "../upstream/adapter-choice.ts";
import { codeOf } from "../upstream/answer.ts";
import { type GatewayIdentity, gatewayHeaders } from "../upstream/gateway-headers.ts";
import {
  createJsonClient,
  type ExchangeResult,
  tlsOptions,
  type UpstreamTls,
} from "../upstream/json-client.ts";
import type { PollOutcome } from "../upstream/poll-request.ts";
import { createUpstream } from "../upstream/upstream.ts";
import { type Check, checksOf } from "./check.ts";

/** Not imported: decision 0040. */
const { request: requestHttp } = process.getBuiltinModule("node:http");

const { good, warning, failed } = checksOf("upstream");

const TIMEOUT_MS = 3000;
/** A task that does not exist: to ask for it costs nothing and changes nothing. */
const NO_TASK = "tollgate-doctor";

const TIMEOUTS = {
  connectTimeoutMs: TIMEOUT_MS,
  headersTimeoutMs: TIMEOUT_MS,
  totalTimeoutMs: TIMEOUT_MS,
  keepAliveTimeoutMs: TIMEOUT_MS,
};

/** @param isAsked whether somebody waits for the answer: then a request is posted, too, that makes nothing */
export const upstreamCheck = (upstream: Config["upstream"], isAsked: boolean): Promise<Check> =>
  upstream.dialect.name === ENVELOPE_CHOICE.name ? envelopeCheck(upstream, isAsked) : adapterCheck(upstream);

async function adapterCheck(settings: Config["upstream"]): Promise<Check> {
  const { host } = new URL(settings.url);
  const upstream = createUpstream({ ...settings, ...TIMEOUTS, idempotent: false });
  const startedMs = performance.now();
  try {
    const outcome = await upstream.poll(NO_TASK, { accountId: "doctor", requestId: NO_TASK });
    const tookMs = Math.round(performance.now() - startedMs);
    return judgePoll(outcome, host, settings.dialect.name, tookMs);
  } finally {
    await upstream.close();
  }
}

function judgePoll(outcome: PollOutcome, host: string, adapter: string, tookMs: number): Check {
  switch (outcome.outcome) {
    case "gone":
    case "refused":
    case "task":
    case "unknown_status":
      return good(`${host} answers through the adapter ${adapter}, in ${tookMs} ms`);
    case "rate_limited":
      return warning(`${host} limits this gateway: ${outcome.detail}`, "look again in a minute");
    case "refused_gateway":
      return failed(
        `${host} refuses this gateway: ${outcome.detail}`,
        "set UPSTREAM_API_KEY to a key that it takes, see that its account is in order, and that upstream.adapter is the one for it",
      );
    default:
      return failed(
        `${host} gives no answer that the adapter ${adapter} can read: ${outcome.detail}`,
        "see that UPSTREAM_URL is the address of its API, and that upstream.adapter is the one for it",
      );
  }
}

async function envelopeCheck(upstream: Config["upstream"], isAsked: boolean): Promise<Check> {
  const { url } = upstream;
  const client = createJsonClient({ ...upstream, ...TIMEOUTS, connections: 1 });
  try {
    const unaskedContinue = isAsked && sendsUnaskedContinue(upstream, TIMEOUT_MS);
    const startedMs = performance.now();
    const exchanged = await client.send({
      method: "GET",
      path: `/api/v1/tasks/${NO_TASK}`,
      headers: ["accept", "application/json"],
      body: null,
      owner: "doctor",
    });
    const tookMs = Math.round(performance.now() - startedMs);
    const { host } = new URL(url);
    const check = judgeUpstream(exchanged, host, tookMs);
    return (await unaskedContinue) && check.status === "ok" ? continuing(host) : check;
  } finally {
    await client.close();
  }
}

const continuing = (host: string): Check =>
  warning(
    `${host} sends \`100 Continue\` without a request for it; the gateway skips it, other clients may fail`,
    "turn that off in the service, or in the proxy before it: `100 Continue` is only for requests with `Expect: 100-continue`",
  );

interface Row {
  /** The code of the system, of Node or of OpenSSL. */
  matches: RegExp;
  /** Follows the host's name. */
  found: string;
  advice: string;
}

/** Why nothing could be sent. The first row that matches counts. */
const UNSENT: readonly Row[] = [
  {
    matches: /WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG/,
    found: "does not speak TLS at this port",
    advice: "use http:// in UPSTREAM_URL, or its TLS port",
  },
  {
    matches: /^(EPROTO|ERR_SSL)/,
    found: "refuses the TLS handshake",
    advice: "look at its log: the gateway speaks TLS 1.2 and 1.3, and shows no client certificate",
  },
  {
    matches: /^(DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT|UNABLE_TO_(VERIFY|GET_ISSUER))/,
    found: "shows a certificate of no authority that is trusted here",
    advice: "name the file of your own authority in upstream.tls_ca",
  },
  {
    matches: /^CERT_(HAS_EXPIRED|NOT_YET_VALID)/,
    found: "shows a certificate that has expired, or is not valid yet",
    advice: "renew it there, and see that both clocks are right",
  },
  {
    matches: /^(CERT_|ERR_TLS)/,
    found: "shows a certificate that does not fit",
    advice: "see that its certificate has the name in UPSTREAM_URL",
  },
  {
    matches: /^(ENOTFOUND|EAI_AGAIN)/,
    found: "cannot be reached: DNS does not know the name",
    advice: "see that the host in UPSTREAM_URL is right, and that DNS answers",
  },
];

/** @param detail a code, a colon, and more that may be OpenSSL's own */
function notSent(host: string, detail: string): Check {
  const row = UNSENT.find(({ matches }) => matches.test(detail));
  const code = detail.split(":", 1)[0];
  if (row) return failed(`${host} ${row.found} (${code})`, row.advice);
  const found = `${host} cannot be reached (${detail.trim()})`;
  return failed(found, "start it, or set UPSTREAM_URL to where it is");
}

const refusesUs = (host: string, status: number, code: string): Check =>
  failed(
    `${host} refuses this gateway (HTTP ${status}, ${code})`,
    "set UPSTREAM_API_KEY to a key that it takes, and see that its account is in order",
  );

const REFUSED = [401, 402, 403, 407];

/** An answer that has not the envelope: something else answers, or something before the service. */
function withoutEnvelope(host: string, status: number): Check {
  const found = `${host} answers HTTP ${status}, but without the envelope's \`code\``;
  if (REFUSED.includes(status)) return refusesUs(host, status, "without the envelope's `code`");
  if (status >= 300 && status < 400)
    return failed(
      `${host} redirects (HTTP ${status}), which the gateway does not follow`,
      "set UPSTREAM_URL to where it redirects",
    );
  if (status >= 500)
    return failed(found, "a proxy before it seems to answer: see that the service behind it runs");
  return failed(
    found,
    "this is no video generation service, or not its base address: set UPSTREAM_URL to the part before /api/v1, with " +
      "https:// if it wants TLS",
  );
}

export function judgeUpstream(exchanged: ExchangeResult, host: string, tookMs: number): Check {
  if (exchanged.outcome === "not_sent") return notSent(host, exchanged.detail);
  if (exchanged.outcome === "lost") {
    return failed(
      `${host} takes connections, but gives no answer (${exchanged.detail})`,
      "look at its log; if it wants TLS, use https://; if another service listens there, set UPSTREAM_URL",
    );
  }
  const { status } = exchanged;
  const code = codeOf(parseObject(exchanged.body));
  if (code === undefined) return withoutEnvelope(host, status);
  if ([status, code].some((each) => REFUSED.includes(each))) return refusesUs(host, status, `code ${code}`);
  if (status === 429 || code === 429 || status >= 500 || (code >= 500 && code < 600)) {
    return warning(
      `${host} answers HTTP ${status}, code ${code}`,
      "it is busy or ill; look again in a minute",
    );
  }
  return good(`${host} speaks the envelope, in ${tookMs} ms`);
}

/** A path that takes no POST, so that nothing comes of it: no task is made, nothing is paid. */
const NO_POST_PATH = "/api/v1/tasks/tollgate-doctor";
const BODY = "{}";

/**
 * True if the upstream, or a proxy before it, sends an unasked `100 Continue`, shown by a POST to a path that takes none. The gateway skips it
 * (decision 0003); other clients end the connection.
 */
function sendsUnaskedContinue(
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
      ? requestHttps(url + NO_POST_PATH, { ...options, ...tlsOptions(upstream) })
      : requestHttp(url + NO_POST_PATH, options);
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
