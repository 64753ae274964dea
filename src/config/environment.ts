import { Pointer } from "typebox/value";
import { isObject } from "../domain/json.ts";
import { UNREPLACED } from "./cross-checks.ts";
import { type ConfigProblem, ENVIRONMENT } from "./problems.ts";
import { ConfigSchema } from "./schema.ts";

/** Nothing here reads `process.env`. */
export type Environment = Readonly<Record<string, string | undefined>>;

const OVERRIDES: Readonly<Record<string, readonly [section: string, key: string]>> = {
  HOST: ["server", "host"],
  PORT: ["server", "port"],
  ADMIN_HOST: ["admin", "host"],
  ADMIN_PORT: ["admin", "port"],
  ADMIN_HOSTS: ["admin", "hosts"],
  REDIS_URL: ["store", "redis_url"],
  UPSTREAM_URL: ["upstream", "url"],
  UPSTREAM_ADAPTER: ["upstream", "adapter"],
  UPSTREAM_PREVIOUS_URL: ["upstream", "previous_url"],
  FALLBACK_STRATEGY: ["store", "fallback_strategy"],
  JOURNAL: ["store", "journal"],
  LOG_LEVEL: ["log", "level"],
};

export function variable(env: Environment, name: string): string | undefined {
  return env[name] || undefined;
}

interface Overrides {
  origins: ReadonlyMap<string, string>;
  hidden: ReadonlyMap<string, string>;
}

export const NO_OVERRIDES: Overrides = { origins: new Map(), hidden: new Map() };

/** @param listsDefaults the package's own file @returns dotted setting to its variable: all, and those that the file sets differently */
export function applyOverrides(
  data: Record<string, unknown>,
  env: Environment,
  listsDefaults = false,
): Overrides {
  const origins = new Map<string, string>();
  const hidden = new Map<string, string>();
  for (const [name, [sectionName, key]] of Object.entries(OVERRIDES)) {
    const value = variable(env, name);
    if (value === undefined) continue;
    data[sectionName] ??= {};
    const settings = data[sectionName];
    if (!isObject(settings)) continue;
    const setting = `${sectionName}.${key}`;
    const isChosen =
      Object.hasOwn(settings, key) &&
      !(listsDefaults && settings[key] === schemaOf(sectionName, key).default);
    if (isChosen && String(settings[key]) !== value) hidden.set(setting, name);
    settings[key] = typed(value, sectionName, key);
    origins.set(setting, name);
  }
  return { origins, hidden };
}

/** Settings of the file that are not in force, a sentence each. @param hidden setting to variable */
export const hiddenInWords = (hidden: ReadonlyMap<string, string>): string[] =>
  [...hidden].map(
    ([setting, name]) => `${setting} of the file is not in force: the variable ${name} replaces it.`,
  );

const schemaOf = (sectionName: string, key: string) =>
  Pointer.Get(ConfigSchema, `/properties/${sectionName}/properties/${key}`) as {
    type?: string;
    default?: unknown;
  };

function typed(value: string, sectionName: string, key: string): string | number | string[] {
  const { type } = schemaOf(sectionName, key);
  if (type === "array") return value.split(",").map((part) => part.trim());
  return type === "integer" && /^\d{1,15}$/.test(value) ? Number(value) : value;
}

export interface Secrets {
  readonly apiKey: string | undefined;
  readonly previousApiKey: string | undefined;
  readonly adminToken: string | undefined;
  readonly archiveUrl: string | undefined;
  readonly webhookSecretKey: string | undefined;
  readonly previousWebhookSecretKey: string | undefined;
}

/** Secrets, which no file has. */
export const SECRET_VARIABLES = [
  "UPSTREAM_API_KEY",
  "UPSTREAM_PREVIOUS_API_KEY",
  "ADMIN_TOKEN",
  "ARCHIVE_URL",
  "WEBHOOK_SECRET_KEY",
  "WEBHOOK_SECRET_KEY_PREVIOUS",
] as const;

export function readSecrets(env: Environment): { secrets: Secrets; problems: ConfigProblem[] } {
  const secrets = {
    apiKey: variable(env, "UPSTREAM_API_KEY"),
    previousApiKey: variable(env, "UPSTREAM_PREVIOUS_API_KEY"),
    adminToken: env.ADMIN_TOKEN,
    archiveUrl: variable(env, "ARCHIVE_URL"),
    webhookSecretKey: env.WEBHOOK_SECRET_KEY,
    previousWebhookSecretKey: variable(env, "WEBHOOK_SECRET_KEY_PREVIOUS"),
  };
  const rules = [
    ["UPSTREAM_API_KEY", secrets.apiKey, apiKeyRule],
    ["UPSTREAM_PREVIOUS_API_KEY", secrets.previousApiKey, apiKeyRule],
    ["ADMIN_TOKEN", secrets.adminToken, adminTokenRule],
    ["ARCHIVE_URL", secrets.archiveUrl, archiveUrlRule],
    ["WEBHOOK_SECRET_KEY", secrets.webhookSecretKey, webhookKeyRule],
    ["WEBHOOK_SECRET_KEY_PREVIOUS", secrets.previousWebhookSecretKey, webhookKeyRule],
  ] as const;
  const problems = rules.flatMap(([path, value, rule]) => {
    const message = unreplacedRule(value) ?? rule(value);
    return message === undefined ? [] : [{ file: ENVIRONMENT, path, message }];
  });
  return { secrets, problems };
}

/** A variable's name is easy to guess. The message never repeats it. */
const unreplacedRule = (value: string | undefined): string | undefined =>
  value !== undefined && UNREPLACED.test(value)
    ? `has a \${VARIABLE}, which is not replaced here; write the value itself`
    : undefined;

/** The message never repeats the key. */
function apiKeyRule(key: string | undefined): string | undefined {
  if (key === undefined || /^[\x21-\x7e]{1,4096}$/.test(key)) return undefined;
  return "must be 1 to 4096 visible ASCII characters, without spaces or line breaks";
}

/** An empty token is a mistake: what should have set it did not. The message never repeats the token. */
function adminTokenRule(token: string | undefined): string | undefined {
  if (token === undefined || /^[\x21-\x7e]{16,256}$/.test(token)) return undefined;
  if (token.trim() === "")
    return "is set but empty; unset it, or set a token that `openssl rand -base64 24` makes";
  return "must be 16 to 256 visible ASCII characters, without spaces; `openssl rand -base64 24` makes one";
}

/** The message never repeats the key. */
function webhookKeyRule(key: string | undefined): string | undefined {
  if (key === undefined || /^[\x21-\x7e]{32,256}$/.test(key)) return undefined;
  if (key.trim() === "")
    return "is set but empty; unset it, or set a key that `openssl rand -base64 32` makes";
  return "must be 32 to 256 visible ASCII characters, without spaces; `openssl rand -base64 32` makes one";
}

const SSL_MODES = ["disable", "prefer", "require", "verify-ca", "verify-full", "no-verify"];

/** The message never repeats the address. */
export function archiveUrlRule(url: string | undefined): string | undefined {
  if (url === undefined) return undefined;
  const address = URL.parse(url);
  const isAddress =
    address &&
    /^postgres(ql)?:$/.test(address.protocol) &&
    address.hostname !== "" &&
    address.pathname.length > 1 &&
    [address.username, address.password, address.pathname].every(isEncoded);
  if (!isAddress)
    return "must be postgres://user:password@host:port/database; special characters of the password as %XX";
  const mode = address.searchParams.get("sslmode");
  if (mode !== null && !SSL_MODES.includes(mode)) return `sslmode must be one of ${SSL_MODES.join(", ")}`;
  return undefined;
}

function isEncoded(text: string): boolean {
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}
