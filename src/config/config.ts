import { existsSync } from "node:fs";
import { availableParallelism } from "node:os";
import path from "node:path";
import { Value } from "typebox/value";
import type { PriceTable } from "../core/prices.ts";
import { crossChecks, fileSecrets } from "./checks.ts";
import { placed, readYaml, type YamlFile } from "./document.ts";
import { adminTokenRule, apiKeyRule, applyOverrides, type Environment, variable } from "./environment.ts";
import { loadPrices } from "./prices.ts";
import { ConfigError, type ConfigProblem, ENVIRONMENT } from "./problems.ts";
import { ConfigSchema } from "./schema.ts";
import { type Config, toConfig } from "./snapshot.ts";
import { type BrokenRule, isPlainObject, validate } from "./validate.ts";

export { ConfigError, type ConfigProblem } from "./problems.ts";
export { ConfigSchema } from "./schema.ts";
export { type Config, redact } from "./snapshot.ts";

const PACKAGE_ROOT = path.resolve(import.meta.dirname, "../..");
const DEFAULT_FILE = "config/tollgate.yaml";
const DEFAULT_PRICES = path.join(PACKAGE_ROOT, "config/prices/reference.yaml");

/** Where a configuration comes from. `file` goes before `TOLLGATE_CONFIG`. */
export interface ConfigSource {
  readonly env: Environment;
  readonly file?: string;
}

/**
 * Reads, checks and freezes the configuration: the file, its price file, and the environment's overrides.
 * @throws ConfigError that names every problem at once
 */
export function loadConfig(source: ConfigSource): Config {
  const { env } = source;
  const file = configPath(source);
  const yaml = readYaml(file);
  const data = withoutEmptySections(yaml.data ?? {});
  const secrets = fileSecrets(data);
  const origins = isPlainObject(data) ? applyOverrides(data, env) : new Map<string, string>();
  const settings = Value.Default(ConfigSchema, data);
  const checked = validate(ConfigSchema, settings);
  const rules = [...checked.problems, ...crossChecks(settings)];
  const problems = [
    ...yaml.problems,
    ...secrets.map((rule) => placed(rule, yaml)),
    ...rules.map((rule) => blamed(rule, yaml, origins)),
  ];

  const apiKey = variable(env, "UPSTREAM_API_KEY");
  const keyProblem = apiKeyRule(apiKey);
  if (keyProblem) problems.push({ file: ENVIRONMENT, path: "UPSTREAM_API_KEY", message: keyProblem });
  const adminToken = variable(env, "ADMIN_TOKEN");
  const tokenProblem = adminTokenRule(adminToken);
  if (tokenProblem) problems.push({ file: ENVIRONMENT, path: "ADMIN_TOKEN", message: tokenProblem });

  const pricesFile = pricesPath(settings, file);
  const prices = checkedPrices(pricesFile, yaml, problems);
  if (checked.value === undefined || prices === undefined || problems.length > 0)
    throw new ConfigError(problems);
  return toConfig(checked.value, { apiKey, adminToken, prices, pricesFile, cores: availableParallelism() });
}

/** Absolute path of the config file: as given, else from the package's own folder where it is not found. */
export function configPath({ env, file }: ConfigSource): string {
  const name = file ?? variable(env, "TOLLGATE_CONFIG") ?? DEFAULT_FILE;
  const candidates = [path.resolve(name), path.resolve(PACKAGE_ROOT, name)];
  return candidates.find((candidate) => existsSync(candidate)) ?? path.resolve(name);
}

/** A section whose settings are all commented out is as good as none. */
function withoutEmptySections(data: unknown): unknown {
  if (!isPlainObject(data)) return data;
  const sections: Readonly<Record<string, { type?: string }>> = ConfigSchema.properties;
  for (const [name, { type }] of Object.entries(sections)) {
    if (type === "object" && data[name] === null) delete data[name];
  }
  return data;
}

/** A broken rule blamed on the variable that decides the setting, else on the file. */
function blamed(rule: BrokenRule, yaml: YamlFile, origins: ReadonlyMap<string, string>): ConfigProblem {
  const variableName = origins.get(rule.keys.join("."));
  if (variableName === undefined) return placed(rule, yaml);
  return { file: ENVIRONMENT, path: variableName, message: rule.message };
}

/** Only the default is taken from the package: a named file that is missing must not become other prices. */
function pricesPath(settings: unknown, file: string): string {
  const named = isPlainObject(settings) ? settings.prices : undefined;
  return typeof named === "string" ? path.resolve(path.dirname(file), named) : DEFAULT_PRICES;
}

function checkedPrices(file: string, yaml: YamlFile, problems: ConfigProblem[]): PriceTable | undefined {
  if (!existsSync(file)) {
    const message = "there is no such price file; a relative path begins at the config file's folder";
    problems.push(placed({ keys: ["prices"], message }, yaml));
    return undefined;
  }
  try {
    return loadPrices(file);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    problems.push(...error.problems);
    return undefined;
  }
}
