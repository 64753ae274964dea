import { setTimeout } from "node:timers/promises";
import type { ArchiveVerification } from "../archive/verify-archive.ts";
import { type KnownHere, verifyLedger } from "../ledger/verify.ts";
import type { Verification } from "../ledger/verify-run.ts";
import type { RedisEndpoint } from "../redis/client.ts";
import type { RedisNodes } from "../redis/nodes.ts";
import { onOwnNodes } from "../redis/open-nodes.ts";
import { StoreError } from "../redis/reasons.ts";
import { storedFacts } from "../redis/store-facts.ts";

const COMMAND_TIMEOUT_MS = 10_000;
const STATEMENT_MS = 60_000;
/** A core has three quarters of its time for requests. */
const REST_TIMES = 3;
const REST_MAX_MS = 200;

/** Verifies in the gateway's process, page by page with rests, on a separate connection. Decision 0064. */
export const verifyBeside = (
  endpoint: RedisEndpoint,
  signal: AbortSignal,
  here: KnownHere,
): Promise<Verification> =>
  withNodes(endpoint, signal, (nodes) => verifyLedger(nodes, { here, rest: restsOf(signal) }));

export async function verifyArchiveBeside(
  endpoint: RedisEndpoint,
  archiveUrl: string,
  signal: AbortSignal,
): Promise<ArchiveVerification> {
  const { connectArchive } = await import("../archive/archive-connection.ts");
  const { identifyFor } = await import("../archive/identity.ts");
  const { verifyArchive } = await import("../archive/verify-archive.ts");
  const { query, close } = connectArchive(archiveUrl, { statementMs: STATEMENT_MS, most: 1 });
  signal.addEventListener("abort", close, { once: true });
  try {
    return await withNodes(endpoint, signal, async (nodes) => {
      await identifyFor(nodes, query);
      return verifyArchive(nodes, query, { rest: restsOf(signal) });
    });
  } finally {
    signal.removeEventListener("abort", close);
    close();
  }
}

function withNodes<T>(
  endpoint: RedisEndpoint,
  signal: AbortSignal,
  work: (nodes: RedisNodes) => Promise<T>,
): Promise<T> {
  return onOwnNodes(
    endpoint,
    COMMAND_TIMEOUT_MS,
    async (nodes) => {
      // A new reader fixes the partitions of an empty store: this one may have lost its data.
      if ((await storedFacts(nodes)).id === undefined)
        throw new StoreError("Redis is empty", "bring back this Redis with its data");
      return work(nodes);
    },
    signal,
  );
}

function restsOf(signal: AbortSignal): () => Promise<void> {
  let sinceMs = performance.now();
  return async () => {
    const workedMs = performance.now() - sinceMs;
    await setTimeout(Math.min(REST_MAX_MS, REST_TIMES * workedMs), undefined, { signal });
    sinceMs = performance.now();
  };
}
