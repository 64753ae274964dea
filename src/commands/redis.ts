import { type Config, readConfig } from "../config/config.ts";
import { printed } from "../config/problems.ts";
import { redisUrlRule } from "../config/setting-rules.ts";
import { parseRedisAddress } from "../domain/redis-address.ts";
import { isMeantBy, replacedStore } from "../durability/losses/last-confirmed.ts";
import {
  createOperatorSession,
  type OperatorSession,
  operatorWords,
  type Written,
} from "../operations/access/operator-session.ts";
import { OperatorError } from "../records/operator-error.ts";
import { partitionsOf, type RedisNodes, storedFacts } from "../redis/store-facts.ts";

/** Commands of the CLI read pages; the gateway's own timeout is for much smaller work. */
const COMMAND_TIMEOUT_MS = 10_000;

type Work<T> = (nodes: RedisNodes) => Promise<T>;

/** Runs work against Redis. @throws Error for another layout, and for an empty Redis in the place of a store that is known here */
export const withRedis = <T>(work: Work<T>): Promise<T> => withSession(({ run }) => run(work), requireKnown);

/** Runs work that writes. @throws OperatorError also if it writes where the store is older than what it confirmed */
export const withRedisToWrite = <T>(work: Work<T>): Promise<Written<T>> =>
  withSession(({ write }) => write(work), requireKnown);

export const withAnyLayout = <T>(work: Work<T>): Promise<T> => withSession(({ run }) => run(work));

/** Runs work that writes to an older or an empty store, too. */
export const withConfirmedRedis = <T>(work: Work<T>): Promise<Written<T>> =>
  withSession(({ writeAnyway }) => writeAnyway(work));

/** Before a command whose first use would make a store of an empty Redis. */
async function requireKnown(nodes: RedisNodes): Promise<void> {
  const found = await storedFacts(nodes);
  if (found.id === undefined && !isMeantBy(ownConfig()?.store.journal, found)) throw replacedStore(found.id);
  // The very first use of a store fixes its partitions, which is the config's to say.
  await partitionsOf(nodes, () => requireConfig().store.partitions);
}

async function withSession<T>(
  use: (session: OperatorSession) => Promise<T>,
  prepare?: Work<void>,
): Promise<T> {
  const url = redisUrl();
  const { journal, confirm } = ownConfig()?.store ?? {};
  const session = createOperatorSession({
    ...{ redisUrl: url, tlsCa: tlsCaFor(url), timeoutMs: COMMAND_TIMEOUT_MS },
    ...{ journal, confirm, prepare },
    inWords: operatorWords(url),
  });
  try {
    return await use(session);
  } finally {
    session.close();
  }
}

export const ownConfig = () => readConfig({ env: process.env }).loaded?.config;

/** `store.tls_ca`, where the configuration of this machine is valid; else Node's own authorities count. */
export const tlsCaFor = (url: string): string | undefined =>
  parseRedisAddress(url).tls ? ownConfig()?.store.tlsCa : undefined;

/** The configuration of this machine. @throws OperatorError that lists its problems */
export function requireConfig(): Config {
  const { loaded, problems } = readConfig({ env: process.env });
  if (loaded) return loaded.config;
  throw new OperatorError(`the configuration cannot be loaded:\n${problems.map(printed).join("\n")}`);
}

/** `REDIS_URL`, else the config's. May hold a password. @throws OperatorError for what this command cannot use */
export function redisUrl(): string {
  const fromEnv = process.env.REDIS_URL;
  const url = fromEnv || requireConfig().store.redisUrl;
  const problem = redisUrlRule(url);
  if (problem !== undefined)
    throw new OperatorError(`${fromEnv ? "REDIS_URL" : "store.redis_url"} ${problem}`);
  return url;
}
