import { type Config, readConfig, requireLoaded } from "../../src/config/config.ts";

/** @throws ConfigError with all problems */
export const loadConfig = (source: Parameters<typeof readConfig>[0]): Config =>
  requireLoaded(readConfig(source)).config;
