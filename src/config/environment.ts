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
    // An empty list or text chooses nothing.
    const isChosen =
      Object.hasOwn(settings, key) &&
      String(settings[key]) !== "" &&
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

/** Secrets, which no file has. An empty one counts as unset, but where `isSet` says that its rule refuses it. */
const SECRETS = {
  apiKey: { name: "UPSTREAM_API_KEY", rule: apiKeyRule },
  previousApiKey: { name: "UPSTREAM_PREVIOUS_API_KEY", rule: apiKeyRule },
  adminToken: { name: "ADMIN_TOKEN", rule: tokenRule(16, "a token", 24), isSet: true },
  archiveUrl: { name: "ARCHIVE_URL", rule: archiveUrlRule },
  webhookSecretKey: { name: "WEBHOOK_SECRET_KEY", rule: tokenRule(32, "a key", 32), isSet: true },
  previousWebhookSecretKey: { name: "WEBHOOK_SECRET_KEY_PREVIOUS", rule: tokenRule(32, "a key", 32) },
} satisfies Record<string, { name: string; rule(value: string): string | undefined; isSet?: true }>;

export type Secrets = Readonly<Record<keyof typeof SECRETS, string | undefined>>;

export const SECRET_VARIABLES = Object.values(SECRETS).map(({ name }) => name);

export function readSecrets(env: Environment): { secrets: Secrets; problems: ConfigProblem[] } {
  const problems: ConfigProblem[] = [];
  const values = Object.entries(SECRETS).map(([secret, { name, rule, ...options }]) => {
    const value = "isSet" in options ? env[name] : variable(env, name);
    const message = value === undefined ? undefined : (unreplacedRule(value) ?? rule(value));
    if (message !== undefined) problems.push({ file: ENVIRONMENT, path: name, message });
    return [secret, value];
  });
  return { secrets: Object.fromEntries(values), problems };
}

/** A variable's name is easy to guess. The message never repeats it. */
const unreplacedRule = (value: string): string | undefined =>
  UNREPLACED.test(value)
    ? `has a \${VARIABLE}, which is not replaced here; write the value itself`
    : undefined;

// The messages never repeat the value.

function apiKeyRule(key: string): string | undefined {
  if (/^[\x21-\x7e]{1,4096}$/.test(key)) return undefined;
  return "must be 1 to 4096 visible ASCII characters, without spaces or line breaks";
}

/** An empty one is a mistake: what should have set it did not. @param bytes of randomness in one that is made */
function tokenRule(least: number, what: string, bytes: number) {
  const form = new RegExp(`^[\\x21-\\x7e]{${least},256}$`);
  const made = `\`openssl rand -base64 ${bytes}\``;
  return (value: string): string | undefined => {
    if (form.test(value)) return undefined;
    if (value.trim() === "") return `is set but empty; unset it, or set ${what} that ${made} makes`;
    return `must be ${least} to 256 visible ASCII characters, without spaces; ${made} makes one`;
  };
}

const SSL_MODES = ["disable", "prefer", "require", "verify-ca", "verify-full", "no-verify"];

export function archiveUrlRule(url: string): string | undefined {
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
