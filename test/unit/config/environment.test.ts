import { expect, test } from "vitest";
import { readConfig, requireLoaded } from "../../../src/config/config.ts";
import { fromDisk } from "../../../src/config/yaml-file.ts";
import { configOf, errorOf } from "./support.ts";

const FILE = `
server: { host: 10.0.0.1, port: 1 }
admin: { host: 10.0.0.1, port: 2 }
store: { redis_url: "redis://file:1", fallback_strategy: deny }
upstream: { url: "http://file" }
log: { level: warn }
`;

const ENV = {
  HOST: "::1",
  PORT: "0",
  ADMIN_HOST: "admin.internal",
  ADMIN_PORT: "65535",
  REDIS_URL: "rediss://app:p%23ss@env:2/3?family=6",
  UPSTREAM_URL: "https://env/base/",
  UPSTREAM_API_KEY: "up_1",
  UPSTREAM_PREVIOUS_URL: "https://before/",
  UPSTREAM_PREVIOUS_API_KEY: "up_0",
  ADMIN_TOKEN: "sixteen-letters-",
  FALLBACK_STRATEGY: "allow",
  JOURNAL: "/var/lib/journal",
  LOG_LEVEL: "fatal",
};

test.each([
  ["the file", FILE],
  ["the defaults", "{}"],
])("each variable goes before %s", (_, file) => {
  expect(configOf(file, ENV)).toMatchObject({
    server: { host: "::1", port: 0 },
    admin: { host: "admin.internal", port: 65_535, token: ENV.ADMIN_TOKEN },
    store: { redisUrl: ENV.REDIS_URL, fallbackStrategy: "allow", journal: "/var/lib/journal" },
    upstream: {
      url: "https://env/base",
      apiKey: "up_1",
      previousUrl: "https://before",
      previousApiKey: "up_0",
    },
    log: { level: "fatal" },
  });
});

test("an empty variable counts as unset", () => {
  const { ADMIN_TOKEN: _, ...others } = ENV;
  const empty = Object.fromEntries(Object.keys(others).map((name) => [name, ""]));
  expect(configOf(FILE, { ...empty, WEBHOOK_SECRET_KEY_PREVIOUS: "" })).toEqual(configOf(FILE));
});

// Guarantee: a secret that was meant to be set never starts a gateway that does without it.
test.each([
  ["ADMIN_TOKEN", ""],
  ["ADMIN_TOKEN", " \t"],
  ["ADMIN_TOKEN", "\n"],
  ["ADMIN_TOKEN", " ".repeat(64)],
  ["WEBHOOK_SECRET_KEY", ""],
  ["WEBHOOK_SECRET_KEY", "  "],
  ["WEBHOOK_SECRET_KEY", "\n"],
  ["WEBHOOK_SECRET_KEY", " ".repeat(64)],
  ["WEBHOOK_SECRET_KEY_PREVIOUS", " "],
])("%s=%j is refused, and the message says what to do", (name, value) => {
  const { problems } = errorOf(() => configOf("{}", { [name]: value }));
  expect(problems).toEqual([
    {
      file: "environment",
      path: name,
      message: expect.stringMatching(
        /^is set but empty; unset it, or set .*`openssl rand -base64 \d+` makes$/,
      ),
    },
  ]);
});

test("a key for secrets has 32 characters or more", () => {
  const key = "0123456789abcdef0123456789abcdef";
  expect(
    configOf("{}", { WEBHOOK_SECRET_KEY: key, WEBHOOK_SECRET_KEY_PREVIOUS: `${key}/=+` }).webhooks,
  ).toMatchObject({
    secretKey: key,
    previousSecretKey: `${key}/=+`,
  });
  const { problems } = errorOf(() => configOf("{}", { WEBHOOK_SECRET_KEY: key.slice(1) }));
  expect(problems.map(({ message }) => message)).toEqual([
    expect.stringContaining("32 to 256 visible ASCII"),
  ]);
});

const UNREPLACED = `has a \${VARIABLE}, which is not replaced here; write the value itself`;

test.each([
  ["HOST", "a b", "must be an IP address or a host name, without port or brackets, such as 0.0.0.0 or ::1"],
  ["PORT", "80 80", 'must be a whole number, not "80 80"'],
  ["PORT", "-1", 'must be a whole number, not "-1"'],
  ["ADMIN_PORT", "65536", "must be at most 65535, not 65536"],
  ["ADMIN_PORT", "8080", "must differ from server.port: both are 8080"],
  ["FALLBACK_STRATEGY", "Deny", 'must be one of deny, allow, not "Deny"'],
  ["UPSTREAM_URL", "https://e/?a=1", "must end with its path: no query and no fragment"],
  [
    "ADMIN_TOKEN",
    "fifteen-letters",
    "must be 16 to 256 visible ASCII characters, without spaces; `openssl rand -base64 24` makes one",
  ],
  [
    "UPSTREAM_PREVIOUS_URL",
    "before",
    "must be an http or https address such as https://generator.example.com",
  ],
  [
    "UPSTREAM_PREVIOUS_API_KEY",
    " ",
    "must be 1 to 4096 visible ASCII characters, without spaces or line breaks",
  ],
  ...["UPSTREAM_API_KEY", "UPSTREAM_PREVIOUS_API_KEY", "ADMIN_TOKEN"].map(
    (name): [string, string, string] => [name, `\${THE_${name}:-}`, UNREPLACED],
  ),
  ["ARCHIVE_URL", `postgres://tollgate:\${PASSWORD}@db/tollgate`, UNREPLACED],
  ["UPSTREAM_API_KEY", "up_1\n", "must be 1 to 4096 visible ASCII characters, without spaces or line breaks"],
])("%s=%j is a problem of that variable", (name, value, message) => {
  const { problems } = errorOf(() => configOf("admin: { host: 0.0.0.0 }", { [name]: value }));
  expect(problems).toEqual([{ file: "environment", path: name, message }]);
});

test("bad variables are reported together, with the file's own mistakes", () => {
  const error = errorOf(() =>
    configOf("log: { levle: info }", { PORT: "x", LOG_LEVEL: "loud", UPSTREAM_API_KEY: " " }),
  );
  expect(error.message.replaceAll(/^\/.*?(?=tollgate.yaml)/gm, "").split("\n")).toEqual([
    "tollgate.yaml:1: log.levle: is unknown; did you mean level?",
    'environment: PORT: must be a whole number, not "x"',
    'environment: LOG_LEVEL: must be one of trace, debug, info, warn, error, fatal, silent, not "loud"',
    "environment: UPSTREAM_API_KEY: must be 1 to 4096 visible ASCII characters, without spaces or line breaks",
  ]);
});

test.each([
  ["REDIS_URL", "redis://:hunter2#@redis:6379"],
  ["REDIS_URL", "redis://:hunter2@redis:6379/x"],
  ["REDIS_URL", "http://:hunter2@redis"],
  ["REDIS_URL", "redis+sentinel://redis:26379/?sentinel_password=hunter2"],
  ["REDIS_URL", "redis+cluster://:hunter2@redis-1:6379,:hunter2@redis-2:6379"],
  ["UPSTREAM_URL", "https://user:hunter2@generator.example.com"],
  ["UPSTREAM_API_KEY", "hunter2 "],
  ["UPSTREAM_PREVIOUS_API_KEY", "hunter2 "],
  ["UPSTREAM_PREVIOUS_URL", "https://user:hunter2@generator.example.com"],
  ["ADMIN_TOKEN", "hunter2"],
  ["WEBHOOK_SECRET_KEY", "hunter2"],
  ["WEBHOOK_SECRET_KEY_PREVIOUS", "hunter2"],
  ["ARCHIVE_URL", "postgres://tollgate:hunter2@/tollgate"],
  ["ARCHIVE_URL", "postgres://tollgate:hunter2@db"],
  ["ARCHIVE_URL", "mysql://tollgate:hunter2@db/tollgate"],
  ["ARCHIVE_URL", "postgres://tollgate:hunter2%zz@db/tollgate"],
  ["ARCHIVE_URL", "postgres://tollgate:hunter2@db/toll%gate"],
  ["ARCHIVE_URL", "postgres://tollgate:hunter2@db/tollgate?sslmode=verify"],
])("%s=%s is refused without repeating the secret", (name, value) => {
  const error = errorOf(() => configOf("{}", { [name]: value }));
  expect(error.problems).toHaveLength(1);
  expect(error.message).not.toContain("hunter2");
});

test.each([
  ["redis://redis:6379", "{}", undefined],
  ["redis://redis:6379", "store: { confirm_replicas: 1 }", 1],
  ["redis+sentinel://redis:26379/tollgate", "{}", 1],
  ["redis+sentinel://redis:26379/tollgate", "store: { confirm_replicas: 0 }", undefined],
  ["rediss+sentinel://redis:26379/tollgate", "store: { confirm_replicas: 2 }", 2],
])("with REDIS_URL=%s and %j, charges wait for %j replicas", (REDIS_URL, file, replicas) => {
  expect(configOf(file, { REDIS_URL }).store.confirm?.replicas).toBe(replicas);
});

test("a password in the file is refused even where the environment overrides it", () => {
  const error = errorOf(() =>
    configOf('store: { redis_url: "redis://:hunter2@r" }', { REDIS_URL: "redis://r" }),
  );
  expect(error.problems.map(({ path }) => path)).toEqual(["store.redis_url"]);
  expect(error.message).toContain("set REDIS_URL in the environment");
  expect(error.message).not.toContain("hunter2");
});

// Guarantee: nobody changes a setting in the file and wonders why nothing happens.
test("settings of the file that a variable replaces with another value are named", () => {
  const file = "/etc/tollgate.yaml";
  const read = (name: string): Buffer =>
    name === file ? Buffer.from("server: { port: 8080 }\nlog: { level: info }\n") : fromDisk(name);
  const env = { PORT: "9000", LOG_LEVEL: "info", HOST: "127.0.0.1" };
  const { hidden, origins } = requireLoaded(readConfig({ env, file, read }));
  expect([...hidden]).toEqual([["server.port", "PORT"]]);
  expect([...origins.values()]).toEqual(["HOST", "PORT", "LOG_LEVEL"]);
});
