import { type Answer, refusal, success } from "../domain/envelope.ts";
import { refuse } from "../domain/errors.ts";
import type { UploadOutcome } from "../upstream/upload.ts";
import { continueReading } from "./exchange.ts";
import {
  type Call,
  gatewayRefused,
  inspectKey,
  passUnmetered,
  UpstreamStep,
  upstreamLimited,
} from "./handler-context.ts";

const UPSTREAM_WAIT_SECONDS = 5;
const UPLOADS_WAIT_SECONDS = 1;

/**
 * POST /upload: INSPECT, then the form streams through. Costs nothing and counts toward no limit of the key. The uploads under
 * way are bounded per key and in total.
 * @returns undefined when the client went away
 */
export async function upload(call: Call): Promise<Answer | undefined> {
  const { gateway, config, exchange, key } = call;
  try {
    const refused = await inspectKey(call);
    if (refused) return refusal(refused, exchange.shownId);
  } catch (error) {
    if (!(await passUnmetered(call, error, true))) throw error;
  }
  const admitted = gateway.uploadCounts.begin(key.keyId, {
    perKeyMax: config.server.uploadsPerKey,
    totalMax: config.upstream.uploadConnections,
  });
  if (admitted !== "begun") return refusal(UPLOADS_REFUSED[admitted], exchange.shownId);
  try {
    return await stream(call);
  } finally {
    gateway.uploadCounts.end(key.keyId);
  }
}

const UPLOADS_REFUSED = {
  key_limit: refuse("slow_down", {
    text: "Too many uploads at a time; wait for one to finish",
    retryAfterSeconds: UPLOADS_WAIT_SECONDS,
  }),
  total_limit: refuse("overloaded", {
    retryAfterSeconds: UPLOADS_WAIT_SECONDS,
    detail: "upload_connections",
  }),
} as const;

async function stream(call: Call): Promise<Answer | undefined> {
  const { gateway, config, exchange } = call;
  const beforeRead = () => continueReading(exchange);
  // Its bytes are the upstream's to slow down; small pieces are work for us alone.
  const pieceRead = () => gateway.bodyRead(exchange.req.socket, 0);
  const step = new UpstreamStep(call, "upload");
  const { carried } = step;
  const sent = gateway.uploads(config).send(exchange, exchange.requestId, {
    beforeRead,
    pieceRead,
    carried,
  });
  return tell(call, step.end(await sent));
}

function tell(call: Call, outcome: UploadOutcome): Answer | undefined {
  const { shownId } = call.exchange;
  const wait = { retryAfterSeconds: UPSTREAM_WAIT_SECONDS };
  switch (outcome.outcome) {
    case "answered":
      return success(JSON.stringify({ ...outcome.data, url: outcome.url, expires_at: outcome.expiresAt }));
    case "refused":
      return refusal(outcome.refusal, shownId);
    case "upstream_refused": {
      const { status, code, text } = outcome;
      return refusal(refuse("upstream_refused", { status, code, text }), shownId);
    }
    case "refused_gateway":
      return refusal(gatewayRefused(call, outcome.detail), shownId);
    case "upstream_rate_limited":
      return refusal(upstreamLimited(outcome.retryAfterSeconds), shownId);
    case "upstream_failed": {
      const text = "The video generation service did not take the upload";
      return refusal(refuse("upstream_failed", { ...wait, text, detail: outcome.detail }), shownId);
    }
    case "upstream_timeout": {
      const text = "The video generation service did not take the upload in time";
      return refusal(refuse("upstream_timeout", { ...wait, text, detail: outcome.detail }), shownId);
    }
    case "client_gone":
      return undefined;
  }
}
