import { existsSync } from "node:fs";
import { availableParallelism } from "node:os";
import path from "node:path";
import { Value } from "typebox/value";
import { isObject } from "../domain/json.ts";
import { readAdapters } from "./adapters.ts";
import { crossChecks, fileSecrets, webhookKeyProblem } from "./cross-checks.ts";
import { settingLeaves } from "./differences.ts";
import { applyOverrides, type Environment, NO_OVERRIDES, readSecrets, variable } from "./environment.ts";
import { readPriceLists } from "./price-lists.ts";
import { ConfigError, type ConfigProblem, ENVIRONMENT } from "./problems.ts";
import { processLimits } from "./process-bounds.ts";
import { type Config, type Extras, toConfig } from "./runtime-config.ts";
import { ConfigSchema, type Settings } from "./schema.ts";
import { readAuthorities, readClientCertificate, readTlsFiles } from "./tls.ts";
import { type BrokenRule, validate } from "./validate.ts";
import type { Contents } from "./watch.ts";
import { type FileReader, fromDisk, placed, readYaml, type YamlFile } from "./yaml-file.ts";

export { ConfigError } from "./problems.ts";
export { redact } from "./redact.ts";
export type { Config } from "./runtime-config.ts";

const PACKAGE_ROOT = path.resolve(import.meta.dirname, "../..");
const DEFAULT_FILE = "config/tollgate.yaml";
const OWN_FILE = path.join(PACKAGE_ROOT, DEFAULT_FILE);
const DEFAULT_PRICES = path.join(PACKAGE_ROOT, "config/prices/reference.yaml");

/** `file` has priority over `TOLLGATE_CONFIG`. */
interface ConfigSource {
  readonly env: Environment;
  readonly file?: string | undefined;
  readonly read?: FileReader;
  /** Whose environment it will have is not known, so no secret is asked for. */
  readonly isForAnother?: boolean;
}

export interface Loaded {
  readonly config: Config;
  /** May contain the password of REDIS_URL. */
  readonly settings: Settings;
  readonly extras: Extras;
  readonly origins: ReadonlyMap<string, string>;
  readonly hidden: ReadonlyMap<string, string>;
  /** Settings that the file has, each with its line. */
  readonly linesInFile: ReadonlyMap<string, number | undefined>;
  readonly source: { readonly env: Environment; readonly file: string };
  readonly contents: Contents;
}

export interface Reading {
  readonly loaded: Loaded | undefined;
  readonly problems: readonly ConfigProblem[];
  readonly contents: Contents;
}

export function defaultConfig(): Loaded {
  const file = OWN_FILE;
  const read: FileReader = (name) => (name === file ? Buffer.from("{}") : fromDisk(name));
  return requireLoaded(readConfig({ env: {}, file, read }));
}

/** @throws ConfigError with all problems */
export function requireLoaded({ loaded, problems }: Reading): Loaded {
  if (loaded === undefined) throw new ConfigError(problems);
  return loaded;
}

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
    const { valid, problems } = readSettings(file, source, read);
    const loaded = valid && { ...valid, source: { env: source.env, file }, contents };
    return { loaded, problems, contents };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return { loaded: undefined, problems: error.problems, contents };
  }
}

function readSettings(
  file: string,
  { env, isForAnother = false }: ConfigSource,
  read: FileReader,
): { valid?: Omit<Loaded, "source" | "contents">; problems: readonly ConfigProblem[] } {
  const yaml = readYaml(file, "write {} if all defaults are meant", read);
  const data = withoutEmptySections(yaml.data);
  const linesInFile = new Map(
    [...settingLeaves(data).keys()].map((setting) => [setting, yaml.lineOf(setting.split("."))]),
  );
  const secretsInFile = fileSecrets(data);
  const { origins, hidden } = isObject(data) ? applyOverrides(data, env, file === OWN_FILE) : NO_OVERRIDES;
  const given = Value.Default(ConfigSchema, data);
  const { value: settings, problems: broken } = validate(ConfigSchema, given);
  const environment = readSecrets(env);
  const ca = readAuthorities(given, path.dirname(file), read);
  const paths = { configFile: file, defaultFile: DEFAULT_PRICES };
  const prices = readPriceLists(given, paths, yaml, read);
  const adapters = readAdapters(given, path.dirname(file), read);
  const tls = settings && readTlsFiles(settings, path.dirname(file), read);
  const own = settings && readClientCertificate(settings, path.dirname(file), read);
  const inFile = (rule: BrokenRule): ConfigProblem => placed(rule, yaml);
  const needsKey = isForAnother ? [] : webhookKeyProblem(given, environment.secrets.webhookSecretKey);
  const problems = [
    ...yaml.problems,
    ...secretsInFile.map(inFile),
    ...[...broken, ...crossChecks(given), ...needsKey, ...adapters.problems].map((rule) =>
      blamed(rule, yaml, origins),
    ),
    ...environment.problems,
    ...ca.problems.map(inFile),
    ...prices.problems,
    ...[...(tls?.problems ?? []), ...(own?.problems ?? [])].map(inFile),
    ...adapters.inModules,
  ];
  if (!settings || !tls || !prices.lists || !adapters.choices || problems.length > 0) {
    return { problems: new ConfigError(problems).problems };
  }
  const extras = {
    ...environment.secrets,
    priceLists: prices.lists,
    authorities: ca.authorities,
    tls: tls.files,
    upstreamCertificate: own?.certificate,
    adapters: adapters.choices,
    cores: availableParallelism(),
    process: processLimits(),
  };
  const config = toConfig(settings, extras);
  const valid = { config, settings: inSchemaOrder(settings), extras, origins, hidden, linesInFile };
  return { valid, problems };
}

/** Falls back to the package's own file. */
export function configPath({ env, file }: ConfigSource): string {
  const named = file ?? variable(env, "TOLLGATE_CONFIG");
  const here = path.resolve(named ?? DEFAULT_FILE);
  return named !== undefined || existsSync(here) ? here : OWN_FILE;
}

function withoutEmptySections(data: unknown): unknown {
  if (!isObject(data)) return data;
  const sections: Readonly<Record<string, object & { type?: string }>> = ConfigSchema.properties;
  for (const [name, { type }] of Object.entries(sections)) {
    if (type === "object" && data[name] === null) delete data[name];
  }
  return data;
}

function inSchemaOrder(settings: Settings): Settings {
  const sections: Readonly<Record<string, object>> = ConfigSchema.properties;
  const ordered = Object.entries(sections).flatMap(([name, schema]) => {
    const value: unknown = settings[name as keyof Settings];
    if (!isObject(value)) return value === undefined ? [] : [[name, value]];
    const known = "properties" in schema ? Object.keys(schema.properties as object) : [];
    const keys = new Set([...known, ...Object.keys(value)]);
    const given = [...keys].filter((key) => value[key] !== undefined);
    return [[name, Object.fromEntries(given.map((key) => [key, value[key]]))]];
  });
  return Object.fromEntries(ordered);
}

function blamed(rule: BrokenRule, yaml: YamlFile, origins: ReadonlyMap<string, string>): ConfigProblem {
  const variableName = origins.get(rule.keys.join("."));
  if (variableName === undefined) return placed(rule, yaml);
  return { file: ENVIRONMENT, path: variableName, message: rule.message };
}

/** Caches a value per config part. Requests with an older configuration keep theirs. @param part must be plain data */
export function memoizeByConfigPart<Made>(
  part: (config: Config) => unknown,
  make: (config: Config) => Made,
): (config: Config) => Made {
  const made = new WeakMap<Config, Made>();
  let latest: { key: string; value: Made } | undefined;
  return (config) => {
    const known = made.get(config);
    if (known !== undefined) return known;
    const key = JSON.stringify(part(config));
    if (latest?.key !== key) latest = { key, value: make(config) };
    made.set(config, latest.value);
    return latest.value;
  };
}
