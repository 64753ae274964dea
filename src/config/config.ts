import { existsSync } from "node:fs";
import { availableParallelism } from "node:os";
import path from "node:path";
import { Value } from "typebox/value";
import type { PriceTable } from "../domain/prices.ts";
import { readAuthorities } from "./authorities.ts";
import { crossChecks, fileSecrets } from "./checks.ts";
import { type FileReader, fromDisk, placed, readYaml, type YamlFile } from "./document.ts";
import { adminTokenRule, apiKeyRule, applyOverrides, type Environment, variable } from "./environment.ts";
import { loadPrices } from "./prices.ts";
import { ConfigError, type ConfigProblem, ENVIRONMENT } from "./problems.ts";
import { processLimits } from "./process-bounds.ts";
import { type Config, type Extras, toConfig } from "./runtime-config.ts";
import { ConfigSchema, type Settings } from "./schema.ts";
import { readTlsFiles } from "./tls.ts";
import { type BrokenRule, isPlainObject, validate } from "./validate.ts";
import type { Contents } from "./watch.ts";

export { ConfigError, type ConfigProblem } from "./problems.ts";
export { redact } from "./redact.ts";
export type { Config } from "./runtime-config.ts";
export { ConfigSchema, type Settings } from "./schema.ts";

const PACKAGE_ROOT = path.resolve(import.meta.dirname, "../..");
const DEFAULT_FILE = "config/tollgate.yaml";
const DEFAULT_PRICES = path.join(PACKAGE_ROOT, "config/prices/reference.yaml");

/** Where a configuration comes from. `file` goes before `TOLLGATE_CONFIG`. */
export interface ConfigSource {
  readonly env: Environment;
  readonly file?: string | undefined;
  /** Reads a file, given its absolute path; from the disk when left out. */
  readonly read?: FileReader;
}

/** A valid configuration in both its forms. */
export interface Loaded {
  readonly config: Config;
  /** As an operator writes it, with overrides and defaults filled in. May hold the password of REDIS_URL. */
  readonly settings: Settings;
  readonly extras: Extras;
  /** Dotted setting to the variable that decides it. */
  readonly origins: ReadonlyMap<string, string>;
  /** Where it came from, to read it again from there and nowhere else. */
  readonly source: { readonly env: Environment; readonly file: string };
  readonly contents: Contents;
}

/** What came of reading a configuration: it is there only if nothing is wrong with it. */
export interface Reading {
  readonly loaded: Loaded | undefined;
  readonly problems: readonly ConfigProblem[];
  /** The files that were looked at: the config file, then those that it names. */
  readonly contents: Contents;
}

/**
 * Reads, checks and freezes the configuration: the file, its price file, and the environment's overrides.
 * @throws ConfigError that names every problem at once
 */
export function loadConfig(source: ConfigSource): Config {
  return requireLoaded(readConfig(source)).config;
}

/** What a file without settings gives. */
export function defaultConfig(): Loaded {
  const file = path.join(PACKAGE_ROOT, DEFAULT_FILE);
  const read: FileReader = (name) => (name === file ? Buffer.from("{}") : fromDisk(name));
  return requireLoaded(readConfig({ env: {}, file, read }));
}

/** What was read. @throws ConfigError if it is not valid */
export function requireLoaded({ loaded, problems }: Reading): Loaded {
  if (loaded === undefined) throw new ConfigError(problems);
  return loaded;
}

/** The same as `loadConfig`, for those who want more of it or go on without it. */
export function readConfig(source: ConfigSource): Reading {
  const file = configPath(source);
  const contents = new Map<string, Buffer | undefined>([[file, undefined]]);
  const read = (name: string): Buffer => {
    contents.set(name, undefined);
    const bytes = (source.read ?? fromDisk)(name);
    contents.set(name, bytes);
    return bytes;
  };
  try {
    const { valid, problems } = readSettings(file, source.env, read);
    const loaded = valid && { ...valid, source: { env: source.env, file }, contents };
    return { loaded, problems, contents };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return { loaded: undefined, problems: error.problems, contents };
  }
}

/** The form that an operator writes, checked; `valid` only if there are no problems. */
function readSettings(
  file: string,
  env: Environment,
  read: FileReader,
): { valid?: Omit<Loaded, "source" | "contents">; problems: readonly ConfigProblem[] } {
  const yaml = readYaml(file, "write {} if all defaults are meant", read);
  const data = withoutEmptySections(yaml.data);
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
  const previousApiKey = variable(env, "UPSTREAM_PREVIOUS_API_KEY");
  const keys = { UPSTREAM_API_KEY: apiKey, UPSTREAM_PREVIOUS_API_KEY: previousApiKey };
  for (const [name, key] of Object.entries(keys)) {
    const keyProblem = apiKeyRule(key);
    if (keyProblem) problems.push({ file: ENVIRONMENT, path: name, message: keyProblem });
  }
  const adminToken = variable(env, "ADMIN_TOKEN");
  const tokenProblem = adminTokenRule(adminToken);
  if (tokenProblem) problems.push({ file: ENVIRONMENT, path: "ADMIN_TOKEN", message: tokenProblem });

  const { authorities, problems: noAuthorities } = readAuthorities(settings, file, read);
  problems.push(...noAuthorities.map((rule) => placed(rule, yaml)));
  const pricesFile = pricesPath(settings, file);
  const prices = checkedPrices(pricesFile, yaml, problems, read);
  const tls = checked.value && readTlsFiles(checked.value, path.dirname(file), read);
  problems.push(...(tls?.problems ?? []).map((rule) => placed(rule, yaml)));
  if (checked.value === undefined || prices === undefined || !tls || problems.length > 0) {
    return { problems: new ConfigError(problems).problems };
  }
  const extras = {
    apiKey,
    previousApiKey,
    adminToken,
    prices,
    pricesFile,
    authorities,
    tls: tls.files,
    cores: availableParallelism(),
    process: processLimits(),
  };
  const config = toConfig(checked.value, extras);
  return { valid: { config, settings: inSchemaOrder(checked.value), extras, origins }, problems };
}

/** Absolute path of the config file. Where none is named, the package's own stands in for one that is not found. */
export function configPath({ env, file }: ConfigSource): string {
  const named = file ?? variable(env, "TOLLGATE_CONFIG");
  const here = path.resolve(named ?? DEFAULT_FILE);
  return named !== undefined || existsSync(here) ? here : path.join(PACKAGE_ROOT, DEFAULT_FILE);
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

/** For those who read it: the order of the shipped file, not that in which things were given. */
function inSchemaOrder(settings: Settings): Settings {
  const sections: Readonly<Record<string, object>> = ConfigSchema.properties;
  const ordered = Object.entries(sections).flatMap(([name, schema]) => {
    const value: unknown = settings[name as keyof Settings];
    if (!isPlainObject(value)) return value === undefined ? [] : [[name, value]];
    const known = "properties" in schema ? Object.keys(schema.properties as object) : [];
    const keys = new Set([...known, ...Object.keys(value)]);
    const given = [...keys].filter((key) => value[key] !== undefined);
    return [[name, Object.fromEntries(given.map((key) => [key, value[key]]))]];
  });
  return Object.fromEntries(ordered);
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

function checkedPrices(
  file: string,
  yaml: YamlFile,
  problems: ConfigProblem[],
  read: FileReader,
): PriceTable | undefined {
  try {
    return loadPrices(file, read);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const message = "there is no such price file; a relative path begins at the config file's folder";
    const problem = placed({ keys: ["prices"], message }, yaml);
    problems.push(...(existsSync(file) ? error.problems : [problem]));
    return undefined;
  }
}
