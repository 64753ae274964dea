import { type Config, readConfig } from "../config/config.ts";
import { printed } from "../config/problems.ts";
import { redisUrlRule } from "../config/setting-rules.ts";
import { OperatorError } from "../records/operator-error.ts";

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
