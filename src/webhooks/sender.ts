import type { Dispatcher } from "undici";
import { visibleLines } from "../domain/operator-texts.ts";
import { checkAddress } from "./address-guard.ts";
import { AddressRefusedError, type EgressPolicy, guardedAgent, type Network } from "./guarded-agent.ts";

export interface Message {
  url: string;
  headers: Readonly<Record<string, string>>;
  body: string;
}

export interface SendResult {
  /** `gone`: the receiver answered 410 and wants no more. */
  outcome: "delivered" | "failed" | "gone";
  status?: number;
  /** The beginning of the answer, at most 4 KiB. */
  answer?: string;
  /** How long the receiver asks to be left alone. */
  retryAfterS?: number;
  /** Why it failed, in plain words without secrets. */
  reason?: string;
}

/** Must be closed. */
export interface Sender {
  /** Never throws, and settles within the timeout of the settings. */
  send(message: Message): Promise<SendResult>;
  close(): Promise<void>;
}

const ANSWER_BYTES_MAX = 4_096;
/** Status and headers decide; a body that comes slowly is not waited for. */
const ANSWER_BODY_MS_MAX = 2_000;
const STOPS = "the gateway stops";
const OWN_HEADERS = {
  "content-type": "application/json",
  "accept-encoding": "identity",
  "user-agent": "Tollgate-Webhooks/1",
};

/** Sends messages to customers' endpoints, and reads what it needs of the answer. @param settings those in force */
export function createSender(settings: () => EgressPolicy, network?: Network): Sender {
  let current: { settings: EgressPolicy; policy: string; agent: Dispatcher } | undefined;
  const underWay = new Set<Attempt>();
  let isClosed = false;

  /** Connections that another policy has allowed are not used any more. */
  function agentFor(inForce: EgressPolicy): Dispatcher {
    if (current?.settings === inForce) return current.agent;
    const { allowNetworks, allowPorts, proxyUrl, timeoutMs } = inForce;
    const used = { allowNetworks, allowPorts, proxyUrl, timeoutMs };
    const policy = JSON.stringify(used);
    // The agent ends what it has in flight, and gets no more.
    if (current && current.policy !== policy) void current.agent.close();
    const agent = current?.policy === policy ? current.agent : guardedAgent(used, network);
    current = { settings: inForce, policy, agent };
    return agent;
  }

  return {
    async send({ url: text, headers, body }) {
      if (isClosed) return { outcome: "failed", reason: STOPS };
      const policy = settings();
      const checked = checkAddress(text, policy);
      if (!checked.ok) return { outcome: "failed", reason: `the address ${checked.reason}` };
      const { origin, pathname, search } = checked.url;
      return await new Promise((resolve) => {
        const attempt = new Attempt(policy.timeoutMs, (result) => {
          underWay.delete(attempt);
          resolve(result);
        });
        underWay.add(attempt);
        const request = { origin, path: pathname + search, method: "POST", body } as const;
        agentFor(policy).dispatch({ ...request, headers: { ...headers, ...OWN_HEADERS } }, attempt);
      });
    },
    async close() {
      isClosed = true;
      // An agent that is closing cannot be destroyed any more.
      for (const attempt of underWay) attempt.end(STOPS);
      await current?.agent.destroy();
    },
  };
}

class Attempt implements Dispatcher.DispatchHandler {
  readonly #timeoutMs: number;
  readonly #startedMs = performance.now();
  readonly #resolve: (result: SendResult) => void;
  #deadline: NodeJS.Timeout;
  #controller: Dispatcher.DispatchController | undefined;
  #settled = false;
  #status = 0;
  #headers: Record<string, string | string[] | undefined> = {};
  readonly #chunks: Buffer[] = [];
  #bytes = 0;

  constructor(timeoutMs: number, resolve: (result: SendResult) => void) {
    this.#timeoutMs = timeoutMs;
    this.#resolve = resolve;
    this.#deadline = setTimeout(() => this.#expire(), timeoutMs);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    // Its time was over before it had a connection. After the process stood still, this may come before the timer.
    if (this.#settled) controller.abort(new Error("too late"));
    else if (performance.now() - this.#startedMs >= this.#timeoutMs) this.#expire();
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>,
  ): void {
    if (status < 200 || this.#settled) return;
    this.#status = status;
    this.#headers = headers;
    clearTimeout(this.#deadline);
    const leftMs = this.#timeoutMs - (performance.now() - this.#startedMs);
    this.#deadline = setTimeout(() => this.#expire(), Math.max(0, Math.min(leftMs, ANSWER_BODY_MS_MAX)));
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#settled) return;
    this.#chunks.push(chunk.subarray(0, ANSWER_BYTES_MAX - this.#bytes));
    this.#bytes += chunk.length;
    if (this.#bytes >= ANSWER_BYTES_MAX) this.#settle(this.#result(), "enough of the answer");
  }

  onResponseEnd(): void {
    this.#settle(this.#result());
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#settle(this.#status === 0 ? { outcome: "failed", reason: failureReason(error) } : this.#result());
  }

  #expire(): void {
    this.end(`no answer within ${this.#timeoutMs} ms`);
  }

  /** As what its receiver has answered so far; without an answer it has failed for this reason. */
  end(reason: string): void {
    const result: SendResult = this.#status === 0 ? { outcome: "failed", reason } : this.#result();
    this.#settle(result, reason);
  }

  #settle(result: SendResult, abortReason?: string): void {
    if (this.#settled) return;
    this.#settled = true;
    clearTimeout(this.#deadline);
    if (abortReason !== undefined) this.#controller?.abort(new Error(abortReason));
    this.#resolve(result);
  }

  #result(): SendResult {
    const status = this.#status;
    const answered = { status, answer: this.#answer() };
    if (status < 300) return { outcome: "delivered", ...answered };
    if (status === 410)
      return { outcome: "gone", ...answered, reason: "the receiver answered 410 and wants no more" };
    const wait = retryAfterS(this.#headers["retry-after"], Date.now());
    const reason = status < 400 ? `answered ${status}: redirects are not followed` : `answered ${status}`;
    return { outcome: "failed", ...answered, reason, ...(wait !== undefined && { retryAfterS: wait }) };
  }

  /** Invisible characters, such as control sequences of terminals, are escaped. */
  #answer(): string {
    if (this.#bytes === 0) return "";
    const encoding = this.#headers["content-encoding"];
    if (encoding !== undefined && encoding !== "identity") return "(compressed)";
    // A character that is cut at the end is left out.
    const text = Buffer.concat(this.#chunks)
      .toString()
      .replace(/\ufffd$/, "");
    return visibleLines(text).slice(0, ANSWER_BYTES_MAX);
  }
}

/** The longest delay of the schedule: a receiver cannot keep a message waiting for ever. */
const RETRY_AFTER_S_MAX = 86_400;

/** Seconds or a date (RFC 9110 10.2.3). @returns 1 to a day, in seconds; undefined where it makes no sense */
export function retryAfterS(header: string | string[] | undefined, nowMs: number): number | undefined {
  const text = (Array.isArray(header) ? header[0] : header)?.trim();
  if (text === undefined) return undefined;
  const seconds = /^\d{1,15}$/.test(text) ? Number(text) : secondsUntil(text, nowMs);
  if (seconds === undefined) return undefined;
  return Math.min(Math.max(seconds, 1), RETRY_AFTER_S_MAX);
}

/** `Sun, 06 Nov 1994 08:49:37 GMT`; `Date.parse` alone takes a great deal more. */
const HTTP_DATE = /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/;

function secondsUntil(date: string, nowMs: number): number | undefined {
  const atMs = HTTP_DATE.test(date) ? Date.parse(date) : Number.NaN;
  return Number.isNaN(atMs) ? undefined : Math.ceil((atMs - nowMs) / 1000);
}

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
function failureReason(error: Error & { code?: string }): string {
  if (error instanceof AddressRefusedError) return `the address ${error.message}`;
  const code = error.code ?? "";
  if (NO_ADDRESS.has(code)) return "no address was found for its name";
  if (code === "ECONNREFUSED") return "the connection was refused";
  if (NO_CONNECTION.has(code)) return "no connection could be made";
  if (CLOSED.has(code)) return "the connection was closed before an answer";
  if (CERTIFICATE.test(code)) return `its certificate is not valid (${code})`;
  if (/^(ERR_SSL|EPROTO)/.test(code)) return "TLS could not be agreed on";
  if (code === "UND_ERR_HEADERS_OVERFLOW") return "the headers of the answer are too large";
  if (error.name === "HTTPParserError" || /^HPE_/.test(code)) return "the answer is not HTTP/1.1";
  if (code === "UND_ERR_ABORTED" && /^Proxy response/.test(error.message))
    return "the egress proxy refused it";
  return code === "" ? "no answer" : `no answer (${code})`;
}
