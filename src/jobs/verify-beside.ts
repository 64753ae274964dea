import { setTimeout } from "node:timers/promises";
import type { ArchiveVerification } from "../archive/verify-archive.ts";
import { type KnownHere, verifyLedger } from "../ledger/verify.ts";
import type { Verification } from "../ledger/verify-run.ts";
import type { RedisEndpoint } from "../redis/client.ts";
import type { RedisNodes } from "../redis/nodes.ts";
import { openNodes } from "../redis/open-nodes.ts";
import { StoreError } from "../redis/reasons.ts";
import { storedFacts } from "../redis/store-facts.ts";

const COMMAND_TIMEOUT_MS = 10_000;
/** A statement of the archive: a page of a large table, on a slow disk. */
const STATEMENT_MS = 60_000;
/** Rests so many times as long as it has worked, so that a core has three quarters of its time for requests. */
const REST_TIMES = 3;
const REST_MAX_MS = 200;

/**
 * Verifies the ledger in the process of a gateway: page by page with rests in between, on a connection of its own, so that no request
 * waits behind its replies, and with bounded memory. Decision 0064.
 * @param signal ends it
 */
export const verifyBeside = (
  endpoint: RedisEndpoint,
  signal: AbortSignal,
  here: KnownHere,
): Promise<Verification> =>
  withNodes(endpoint, signal, (nodes) => verifyLedger(nodes, { here, rest: restsOf(signal) }));

/** The same for the archive. */
export async function verifyArchiveBeside(
  endpoint: RedisEndpoint,
  archiveUrl: string,
  signal: AbortSignal,
): Promise<ArchiveVerification> {
  const { connectArchive } = await import("../archive/connection.ts");
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

async function withNodes<T>(
  endpoint: RedisEndpoint,
  signal: AbortSignal,
  work: (nodes: RedisNodes) => Promise<T>,
): Promise<T> {
  const { nodes, close } = await openNodes(endpoint, COMMAND_TIMEOUT_MS);
  signal.addEventListener("abort", close, { once: true });
  try {
    signal.throwIfAborted();
    // A reader that meets a new store fixes its partitions: a Redis that has lost its data would be one.
    if ((await storedFacts(nodes)).id === undefined)
      throw new StoreError("Redis is empty", "bring back this Redis with its data");
    return await work(nodes);
  } finally {
    signal.removeEventListener("abort", close);
    close();
  }
}

/** Waits for as long as the work since the last rest allows. */
function restsOf(signal: AbortSignal): () => Promise<void> {
  let sinceMs = performance.now();
  return async () => {
    const workedMs = performance.now() - sinceMs;
    await setTimeout(Math.min(REST_MAX_MS, REST_TIMES * workedMs), undefined, { signal });
    sinceMs = performance.now();
  };
}
