import { readConfig } from "../config/config.ts";
import { hostsIn, parseRedisAddress } from "../domain/redis-address.ts";
import { isMeantBy, replacedStore } from "../durability/losses/last-confirmed.ts";
import { confirmedByReplicas, type Written, writtenBy } from "../operations/access/confirmed-writes.ts";
import { findWritable } from "../operations/store/operator-loss.ts";
import { OperatorError } from "../records/operator-error.ts";
import type { RedisNodes } from "../redis/nodes.ts";
import { type OpenedNodes, openNodes } from "../redis/open-nodes.ts";
import { inStoreWords, storeReason } from "../redis/reasons.ts";
import { partitionsOf, storedFacts } from "../redis/store-facts.ts";
import { redisUrl, requireConfig } from "./local-config.ts";

/** Commands of the CLI read pages; the gateway's own timeout is for much smaller work. */
const COMMAND_TIMEOUT_MS = 10_000;

/**
 * Runs one command's work against Redis, and closes the connection whatever happens.
 * @throws Error for another layout, and for an empty Redis in the place of a store that is known here:
 *   the first command would make a store of it
 */
export const withRedis = <T>(work: (nodes: RedisNodes) => Promise<T>): Promise<T> =>
  withAnyLayout(async (nodes) => {
    const found = await storedFacts(nodes);
    if (found.id === undefined && !isMeantBy(ownConfig()?.store.journal, found))
      throw replacedStore(found.id);
    // The very first use of a store fixes its partitions, which is the config's to say.
    await partitionsOf(nodes, () => requireConfig().store.partitions);
    return work(nodes);
  });

/** The same, whatever layout the store has. */
export async function withAnyLayout<T>(work: (nodes: RedisNodes) => Promise<T>): Promise<T> {
  const { nodes, close } = await connect(redisUrl());
  try {
    return await work(nodes);
  } catch (error) {
    if (error instanceof OperatorError || !(error instanceof Error)) throw error;
    // Redis's own words, or those of a broken connection.
    throw new Error(`Redis at ${hostsIn(redisUrl())}: ${inStoreWords(error)}`, { cause: error });
  } finally {
    close();
  }
}

/** The same for work that writes. @throws OperatorError also if it writes where the store is older than what it confirmed */
export const withRedisToWrite = <T>(work: (nodes: RedisNodes) => Promise<T>): Promise<Written<T>> =>
  withRedis((nodes) => writeWhereWritable(nodes, work));

async function writeWhereWritable<T>(
  nodes: RedisNodes,
  work: (nodes: RedisNodes) => Promise<T>,
): Promise<Written<T>> {
  const writable = await findWritable(nodes, ownConfig()?.store.journal);
  return confirmedWrite(nodes, (confirmed) => work({ ...confirmed, ...writable }));
}

/** The same for work that writes to an older or an empty store, too. */
export const withConfirmedRedis = <T>(work: (nodes: RedisNodes) => Promise<T>): Promise<Written<T>> =>
  withAnyLayout((nodes) => confirmedWrite(nodes, work));

const confirmedWrite = <T>(nodes: RedisNodes, work: (nodes: RedisNodes) => Promise<T>): Promise<Written<T>> =>
  writtenBy(work, confirmedByReplicas(nodes, ownConfig()?.store.confirm?.replicas ?? 0));

/** The configuration of this machine, where it is valid. */
export const ownConfig = () => readConfig({ env: process.env }).loaded?.config;

/** What `store.tls_ca` says, where the configuration of this machine is valid; else Node's own authorities count. */
export const tlsCaFor = (url: string): string | undefined =>
  parseRedisAddress(url).tls ? ownConfig()?.store.tlsCa : undefined;

/** The servers of a store, connected within two seconds. @throws OperatorError in one sentence that says what to do */
export async function connect(url: string): Promise<OpenedNodes> {
  try {
    return await openNodes({ redisUrl: url, tlsCa: tlsCaFor(url) }, COMMAND_TIMEOUT_MS);
  } catch (error) {
    const { why, advice = "see Redis's log, and that REDIS_URL is right" } = storeReason(error);
    throw new OperatorError(`Redis at ${hostsIn(url)} cannot be used (${why}); ${advice}`);
  }
}
