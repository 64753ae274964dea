import { Pool } from "undici";
import { withoutSecret } from "./secret.ts";

const ANSWER_BYTES_MAX = 1024 * 1024;

/** One upstream exchange as it ended. `unsent` and `lost` differ in one thing that decides over money. */
export type Exchanged =
  | { outcome: "answered"; status: number; retryAfter: string | undefined; body: string }
  /** No byte of the request can have reached the upstream. */
  | { outcome: "unsent"; detail: string }
  /** The request went out; what became of it is not known. */
  | { outcome: "lost"; timedOut: boolean; detail: string };

export interface ExchangeOptions {
  /** Origin and optional base path, no trailing slash. */
  url: string;
  apiKey: string | undefined;
  connectTimeoutMs: number;
  headersTimeoutMs: number;
  totalTimeoutMs: number;
  connections: number;
}

/** A pool of connections to the upstream; `send` always settles, at the total deadline at the latest. */
export function createExchanger(options: ExchangeOptions) {
  const { origin, pathname } = new URL(options.url);
  const basePath = pathname === "/" ? "" : pathname;
  const pool = new Pool(origin, {
    connections: options.connections,
    pipelining: 1,
    connect: { timeout: options.connectTimeoutMs },
    headersTimeout: options.headersTimeoutMs,
    bodyTimeout: options.totalTimeoutMs,
    keepAliveTimeout: 4000,
    keepAliveMaxTimeout: 60_000,
  });
  const authorization = options.apiKey === undefined ? [] : ["authorization", `Bearer ${options.apiKey}`];
  const clean = withoutSecret(options.apiKey);

  return {
    /**
     * Sends one request. Never retries: a connection that breaks after the request went out may have run it.
     * @param headers flat name, value pairs beside authorization
     * @param budgetMs how long the whole exchange may take
     */
    send(
      method: "GET" | "POST",
      path: string,
      headers: string[],
      body: string | null,
      budgetMs: number = options.totalTimeoutMs,
    ): Promise<Exchanged> {
      return new Promise((resolve) => {
        const chunks: Buffer[] = [];
        let bytes = 0;
        let started = false;
        let settled = false;
        let status = 0;
        let retryAfter: string | undefined;
        let abort: (() => void) | undefined;

        const settle = (result: Exchanged): void => {
          if (settled) return;
          settled = true;
          clearTimeout(deadline);
          resolve(result);
        };
        const fail = (timedOut: boolean, detail: string): void => {
          settle(started ? { outcome: "lost", timedOut, detail } : { outcome: "unsent", detail });
          abort?.();
        };
        const deadline = setTimeout(() => fail(true, `no complete answer within ${budgetMs} ms`), budgetMs);

        pool.dispatch(
          { path: basePath + path, method, headers: [...authorization, ...headers], body },
          {
            onRequestStart(controller) {
              abort = () => controller.abort(new Error("given up"));
              // Given up while it waited for a connection: it must not go out any more.
              if (settled) abort();
              else started = true;
            },
            onResponseStart(_controller, statusCode, responseHeaders) {
              status = statusCode;
              const wait = responseHeaders["retry-after"];
              retryAfter = Array.isArray(wait) ? wait[0] : wait;
            },
            onResponseData(_controller, chunk) {
              bytes += chunk.length;
              if (bytes > ANSWER_BYTES_MAX) fail(false, "the answer is larger than 1 MiB");
              else chunks.push(chunk);
            },
            onResponseEnd() {
              const text = (chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)).toString("utf8");
              settle({ outcome: "answered", status, retryAfter, body: clean(text) });
            },
            onResponseError(_controller, error) {
              const { code } = error as NodeJS.ErrnoException;
              const timedOut = code === "UND_ERR_HEADERS_TIMEOUT" || code === "UND_ERR_BODY_TIMEOUT";
              fail(timedOut, code === undefined ? error.message : `${code}: ${error.message}`);
            },
          },
        );
      });
    },
    close: (): Promise<void> => pool.destroy(),
  };
}

export type Exchanger = ReturnType<typeof createExchanger>;
