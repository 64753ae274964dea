import { type HandlerResult, success } from "../domain/envelope.ts";
import { refuse } from "../domain/errors.ts";
import { continueReading, type RequestContext, UpstreamStep } from "./http-exchange.ts";
import { inspectKey } from "./inspect-key.ts";
import { passUnmetered, showKnownLimits } from "./unmetered.ts";
import { uploadRefusal } from "./upstream-refusals.ts";

/**
 * An upload takes 2 to 3 MB of memory while it streams, whatever its size, and nothing is stored. Limited per key
 * (`server.uploads_per_key`) and in total (`upstream.upload_connections`). Decision 0025.
 */
export class Uploads {
  /** Uploads in progress by key id; keys without any are absent. */
  readonly #byKey = new Map<string, number>();
  #total = 0;
  readonly #changed: (total: number) => void;

  /** @param changed called with the number of uploads in progress whenever it has changed */
  constructor(changed: (total: number) => void) {
    this.#changed = changed;
  }

  /** INSPECT, then the form streams through; no cost, no tier limit. @returns undefined when the client went away */
  async upload(context: RequestContext): Promise<HandlerResult | undefined> {
    const { config, exchange, gateway, key } = context;
    gateway.uploadStarted(exchange.req, key.accountId);
    try {
      const refused = await inspectKey(context);
      if (refused) return refused;
    } catch (error) {
      if (!(await passUnmetered(context, error, true))) throw error;
    }
    const used = this.#byKey.get(key.keyId) ?? 0;
    const { uploadsPerKey: limit } = config.server;
    if (used >= limit) return { ...KEY_LIMIT, limit, used };
    if (this.#total >= config.upstream.uploadConnections) return TOTAL_LIMIT;
    this.#count(key.keyId, 1);
    try {
      return await stream(context);
    } finally {
      this.#count(key.keyId, -1);
    }
  }

  #count(keyId: string, change: 1 | -1): void {
    const ofKey = (this.#byKey.get(keyId) ?? 0) + change;
    if (ofKey === 0) this.#byKey.delete(keyId);
    else this.#byKey.set(keyId, ofKey);
    this.#total += change;
    this.#changed(this.#total);
  }
}

const RETRY_AFTER_SECONDS = 1;
const KEY_LIMIT = refuse("slow_down", {
  text: "Too many uploads at a time; wait for one to finish",
  retryAfterSeconds: RETRY_AFTER_SECONDS,
});
const TOTAL_LIMIT = refuse("overloaded", {
  retryAfterSeconds: RETRY_AFTER_SECONDS,
  detail: "upstream.upload_connections",
});

async function stream(context: RequestContext): Promise<HandlerResult | undefined> {
  const { gateway, config, exchange } = context;
  const step = new UpstreamStep(context, "upload");
  const sent = gateway.uploads(config).send(exchange, exchange.requestId, {
    beforeRead: () => continueReading(exchange),
    // The upstream slows down the bytes; only the number of chunks is work for the gateway.
    pieceRead: () => gateway.bodyRead(exchange.req.socket, 0),
    carried: step.carried,
  });
  const outcome = step.end(await sent);
  if (outcome.outcome === "client_gone") return undefined;
  if (outcome.outcome !== "answered") return uploadRefusal(context, outcome);
  if (exchange.degraded) showKnownLimits(context);
  return success(JSON.stringify({ ...outcome.data, url: outcome.url, expires_at: outcome.expiresAt }));
}
