import { readFileSync } from "node:fs";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { parse } from "yaml";
import { configPath, redact } from "../../../src/config/config.ts";
import { processBounds, processLimits } from "../../../src/config/process-bounds.ts";
import { ConfigSchema } from "../../../src/config/schema.ts";
import { CREDIT_PACKAGES } from "../../../src/domain/money.ts";
import { loadConfig } from "../../support/load-config.ts";
import { configOf, errorOf, givenFiles } from "./support.ts";

const SHIPPED = path.resolve("config/tollgate.yaml");

test("config/tollgate.yaml shows exactly the defaults: a file without settings gives the same", () => {
  expect(loadConfig({ env: {}, file: SHIPPED })).toEqual(configOf("{}"));
});

test("config/tollgate.yaml shows every setting", () => {
  const shown: Record<string, unknown> = parse(readFileSync(SHIPPED, "utf8"));
  expect(Object.keys(shown)).toEqual(Object.keys(ConfigSchema.properties));
  for (const name of ["server", "admin", "store", "upstream", "tasks", "log"] as const) {
    // TLS has no default; it is shown as a comment.
    const settings = Object.keys(ConfigSchema.properties[name].properties).filter((key) => key !== "tls");
    expect(Object.keys(shown[name] as object)).toEqual(settings);
  }
});

test("the defaults are those of the design", () => {
  const { priceLists, tiers, packages, ...rest } = configOf("{}");
  expect({ ...packages }).toEqual(CREDIT_PACKAGES);
  expect({ ...tiers }).toEqual({
    standard: { rate_limit: 20, max_concurrent: 3, daily_limit: 500 },
    enterprise: { rate_limit: 100, max_concurrent: 10, daily_limit: 10_000 },
  });
  expect(priceLists).toHaveLength(1);
  expect(priceLists[0]!.file).toBe(path.resolve("config/prices/reference.yaml"));
  expect(priceLists[0]!.table["gen2/text-to-video"]).toBe(10);
  expect(rest).toEqual({
    accounts: { indexedMetadata: [] },
    server: {
      host: "0.0.0.0",
      port: 8080,
      trustProxy: [],
      maxHeaderLines: 100,
      headersTimeoutMs: 15_000,
      bodyTimeoutMs: 15_000,
      uploadIdleTimeoutMs: 15_000,
      keepAliveTimeoutMs: 65_000,
      writeTimeoutMs: 30_000,
      ...processBounds(
        {
          max_connections: "auto",
          max_connections_per_address: "auto",
          max_requests_in_flight: "auto",
          max_body_bytes_in_flight: "auto",
          workers: 1,
          upstream: { connections: 256, poll_connections: 64, upload_connections: 128 },
        },
        processLimits(),
      ),
      drainDelayMs: 1_000,
      drainTimeoutMs: 30_000,
      unknownKeysPerMinute: 100,
      uploadMinBytesPerSecond: 4096,
      uploadsPerKey: 16,
      utilityRequestsPerSecond: 100,
      workers: 1,
    },
    admin: {
      host: "127.0.0.1",
      port: 9090,
      hosts: [],
      bounds: {
        writesPerMinute: 600,
        bytesPerDay: 8_388_608,
        tokensPerToken: 100,
        keysPerAccount: 10_000,
      },
      token: undefined,
    },
    store: {
      redisUrl: "redis://127.0.0.1:6379",
      commandTimeoutMs: 500,
      confirm: undefined,
      fallbackStrategy: "deny",
      allowMaxPerKey: 0,
      allowNoPersistence: false,
      partitions: 64,
      journal: ".tollgate/journal",
      ledgerCheckIntervalMs: 3_600_000,
    },
    archive: { url: undefined, keepMs: 7 * 24 * 3_600_000, intervalMs: 1000 },
    upstream: {
      url: "http://127.0.0.1:4010",
      apiKey: undefined,
      previousUrl: undefined,
      previousApiKey: undefined,
      replaces: [],
      connectTimeoutMs: 5_000,
      headersTimeoutMs: 30_000,
      totalTimeoutMs: 60_000,
      uploadTotalTimeoutMs: 600_000,
      connections: 256,
      pollConnections: 64,
      uploadConnections: 128,
      keepAliveTimeoutMs: 4_000,
      idempotencyKey: false,
      statuses: {},
      dialect: { name: "envelope", id: "envelope", adapter: expect.any(Function), options: {} },
      headers: {},
    },
    sourceVideoHost: "https://videos.example.com",
    tasks: {
      refundFailed: true,
      maxAgeMs: 7_200_000,
      cacheMs: 5_000,
      sweepIntervalMs: 1_000,
      sweepPollsPerSecond: 50,
      pollIntervalMs: 10_000,
      unknownOutcomesPerAccount: 20,
      retentionMs: 604_800_000,
    },
    webhooks: {
      secretKey: undefined,
      previousSecretKey: undefined,
      publicUrl: undefined,
      relay: "requested",
      callbacks: "storyboard",
      anyOrigin: false,
      proxyUrl: undefined,
      allowNetworks: [],
      allowPorts: [],
      timeoutMs: 15_000,
      retriesMs: [5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400].map((s) => s * 1000),
      disableAfterMs: 432_000_000,
      keepMs: 604_800_000,
      endpointsPerAccount: 10,
      inFlight: 256,
      inFlightPerEndpoint: 4,
    },
    log: { level: "info", polls: "debug", slowRequestMs: 0 },
    tracing: { endpoint: undefined, sampleRatio: 1, queue: 2048, exportTimeoutMs: 10_000 },
    confirmedPrices: {},
    reload: "auto",
  });
});

test("what the file says goes before the defaults, and sections without settings are their defaults", () => {
  const config = configOf(
    `
server:
admin: {}
tiers:
  standard: { rate_limit: 1, max_concurrent: 2, daily_limit: 3 }
  trial-2: { rate_limit: 100000, max_concurrent: 10000, daily_limit: 1000000000 }
upstream: { url: "https://generator.example.com:8443/v2/", total_timeout: 500ms, headers_timeout: 500ms, connect_timeout: 10ms }
source_video_host: https://videos.example.org/
`,
  );
  expect(config.server.port).toBe(8080);
  expect(config.upstream).toMatchObject({
    url: "https://generator.example.com:8443/v2",
    totalTimeoutMs: 500,
  });
  expect(config.sourceVideoHost).toBe("https://videos.example.org");
  expect(Object.keys(config.tiers)).toEqual(["standard", "trial-2"]);
});

test("words for task states are kept as they are looked up", () => {
  const { statuses } = configOf(
    "upstream: { statuses: { In Progress: pending, UP-scaling: processing } }",
  ).upstream;
  expect(statuses).toEqual({ in_progress: "pending", up_scaling: "processing" });
});

test("the configuration is frozen to the bottom", () => {
  const config = configOf("server: { trust_proxy: [10.0.0.0/8, ::1] }");
  for (const part of [
    config,
    config.server,
    config.server.trustProxy,
    config.tiers.standard,
    config.priceLists,
  ]) {
    expect(Object.isFrozen(part)).toBe(true);
  }
  expect(Object.isFrozen(config.priceLists[0]!.table["gen2-pro/storyboard"])).toBe(true);
});

test("a tier named like a part of every JavaScript object does not exist", () => {
  expect(configOf("{}").tiers.constructor).toBeUndefined();
});

test("a named price file is relative to the config file, and never replaced by the shipped one", () => {
  const flat = [
    "gen2/text-to-video: 1",
    "gen2/image-to-video: 2",
    "gen2-pro/text-to-video: 3",
    "gen2-pro/image-to-video: 4",
    "gen2/watermark-remove: 5",
    "gen2-pro/storyboard: 6",
  ].join("\n");
  const file = givenFiles({ "tollgate.yaml": "prices: own.yaml", "own.yaml": flat });
  const config = loadConfig({ env: {}, file });
  expect(config.priceLists[0]!.file).toBe(path.join(path.dirname(file), "own.yaml"));
  expect(config.priceLists[0]!.table["gen2-pro/storyboard"]).toBe(6);
  expect(errorOf(() => configOf("prices: prices/reference.yaml")).message).toContain("no such price file");
});

test("prices may be a list of files that begin at a time, each later than the one before", () => {
  const flat = (credits: number) =>
    ["gen2/text-to-video", "gen2/image-to-video", "gen2-pro/text-to-video", "gen2-pro/image-to-video"]
      .concat("gen2/watermark-remove", "gen2-pro/storyboard")
      .map((endpoint) => `${endpoint}: ${credits}`)
      .join("\n");
  const files = {
    "one.yaml": flat(1),
    "two.yaml": flat(2),
    "three.yaml": flat(3),
    "bad.yaml": "gen2/text-to-video: 0",
  };
  const listed = (prices: string) => {
    const file = givenFiles({ "tollgate.yaml": `prices: ${prices}`, ...files });
    return loadConfig({ env: {}, file }).priceLists;
  };
  const from = (time: string, file: string) => `{ from: "${time}", file: ${file} }`;
  const [december, january] = ["2026-12-01T00:00:00.001Z", "2027-01-01T01:00:00+01:00"];
  const lists = listed(`[{ file: one.yaml }, ${from(december, "two.yaml")}, ${from(january, "three.yaml")}]`);
  expect(lists.map(({ fromMs, name, table }) => [fromMs, name, table["gen2/text-to-video"]])).toEqual([
    [0, "one.yaml", 1],
    [Date.parse("2026-12-01T00:00:00.001Z"), "two.yaml", 2],
    [Date.parse("2027-01-01T00:00:00Z"), "three.yaml", 3],
  ]);
  const wrong = {
    "[]": "prices",
    "[{ from: 2026-12-01, file: one.yaml }]": "prices.0.from",
    '[{ from: "2026-12-01T00:00:00", file: one.yaml }]': "prices.0.from",
    '[{ from: "2026-02-30T00:00:00Z", file: one.yaml }]': "prices.0.from",
    "[{ file: one.yaml }, { file: two.yaml }]": "prices.1.from",
    [`[${from(january, "one.yaml")}, ${from(december, "two.yaml")}]`]: "prices.1.from",
    [`[${from(december, "one.yaml")}, ${from(december, "two.yaml")}]`]: "prices.1.from",
    "[{ file: none.yaml }]": "prices.0.file",
    "[{ file: bad.yaml }]": "gen2/text-to-video",
    "[{ file: one.yaml, to: 5 }]": "prices.0.to",
  };
  for (const [prices, where] of Object.entries(wrong)) {
    const { problems } = errorOf(() => listed(prices));
    expect(
      problems.map(({ path: place }) => place),
      prices,
    ).toContain(where);
  }
});

test("TOLLGATE_CONFIG names the file, `file` goes before it, and the default is the shipped one", () => {
  const file = givenFiles({ "tollgate.yaml": "log: { level: silent }" });
  expect(loadConfig({ env: { TOLLGATE_CONFIG: file } }).log.level).toBe("silent");
  expect(loadConfig({ env: { TOLLGATE_CONFIG: "/nowhere.yaml" }, file }).log.level).toBe("silent");
  expect(configPath({ env: { TOLLGATE_CONFIG: "" } })).toBe(SHIPPED);
});

/** Makes a folder far from the package the working directory. */
function givenOtherFolder(): void {
  const before = process.cwd();
  process.chdir(path.dirname(givenFiles({ "some.txt": "" })));
  onTestFinished(() => process.chdir(before));
}

test("away from the package, the package's own file is found", () => {
  givenOtherFolder();
  expect(configPath({ env: {} })).toBe(SHIPPED);
});

// Guarantee: nobody is charged by the shipped settings because the name of the own ones was misspelt.
test("a config file that was named and is missing is never replaced by the shipped one", () => {
  givenOtherFolder();
  const name = "config/tollgate.yaml";
  for (const source of [{ env: { TOLLGATE_CONFIG: name } }, { env: {}, file: name }]) {
    expect(errorOf(() => loadConfig(source)).message).toBe(`${name}: cannot be read: there is no such file`);
  }
});

test("a file that cannot be read is one problem in words", () => {
  expect(errorOf(() => loadConfig({ env: {}, file: "/nowhere.yaml" })).message).toBe(
    "/nowhere.yaml: cannot be read: there is no such file",
  );
  expect(errorOf(() => loadConfig({ env: {}, file: path.dirname(SHIPPED) })).message).toBe(
    "config: cannot be read: it is a folder",
  );
  expect(errorOf(() => configOf(`#${"x".repeat(1024 * 1024)}`)).message).toContain("is larger than 1 MiB");
});

test.each(["", "\n", "---\n", "~"])("a file that says nothing does not mean the defaults: %j", (content) => {
  expect(errorOf(() => configOf(content)).message).toMatch(/(is empty|nothing but comments); write \{\} if/);
});

test("redact leaves no secret in what is printed", () => {
  const env = {
    UPSTREAM_API_KEY: "up_5ecret",
    ADMIN_TOKEN: "5ecret-and-longer",
    REDIS_URL: "rediss://app:hunter2@redis.example.com:6380/1",
    ARCHIVE_URL: "postgres://tollgate:hunter2@db.example.com:5433/tollgate?sslpassword=5ecret",
  };
  const config = configOf("{}", env);
  expect(config.upstream.apiKey).toBe("up_5ecret");
  expect(config.store.redisUrl).toBe(env.REDIS_URL);
  const shown = redact(config);
  expect(JSON.stringify(shown)).not.toMatch(/5ecret|hunter2/);
  expect(shown.store.redisUrl).toBe("rediss://app:***@redis.example.com:6380/1");
  expect(shown.upstream.apiKey).toBe("***");
  expect(shown.admin.token).toBe("***");
  expect(shown.archive.url).toBe("postgres://db.example.com:5433/tollgate");
  expect(redact(configOf("{}"))).toEqual(configOf("{}"));
});

test("packages replace the defaults, and only names and whole credits are packages", () => {
  const config = configOf("packages: { starter: 50, big-2: 5000 }");
  expect({ ...config.packages }).toEqual({ starter: { credits: 50 }, "big-2": { credits: 5000 } });
  const priced = configOf(
    'packages: { a: { credits: 5, price: "9.9" }, b: { credits: 6, price: "900", currency: JPY } }',
  );
  expect({ ...priced.packages }).toEqual({
    a: { credits: 5, price: "9.90", currency: "USD" },
    b: { credits: 6, price: "900", currency: "JPY" },
  });
  expect(config.packages.constructor).toBeUndefined();
  expect({ ...configOf("packages: {}").packages }).toEqual({});
  const wrong = ["{ starter: 0 }", "{ starter: 1.5 }", "{ Starter: 5 }", "{ starter: many }", "[]"];
  wrong.push(
    "{ a: { price: '9.90' } }",
    "{ a: { credits: 5, price: 9.90 } }",
    "{ a: { credits: 5, price: '9.901' } }",
  );
  wrong.push("{ a: { credits: 5, price: '-1' } }", "{ a: { credits: 5, price: '1', currency: usd } }");
  for (const packages of wrong) {
    const { problems } = errorOf(() => configOf(`packages: ${packages}`));
    expect(
      problems.map(({ path }) => path.split(".")[0]),
      packages,
    ).toEqual(["packages"]);
  }
  for (const [money, path] of [
    ["price: '1', currency: ZZZ", "packages.a.currency"],
    ["price: '1.001', currency: HUF", "packages.a.price"],
  ])
    expect(errorOf(() => configOf(`packages: { a: { credits: 5, ${money} } }`)).problems[0]).toMatchObject({
      path,
    });
});

test("every setting has a description and, but for the price file, a default: the JSON Schema explains itself", () => {
  const { prices, ...sections } = JSON.parse(JSON.stringify(ConfigSchema)).properties;
  expect(prices.description).toMatch(/left out/);
  for (const [name, section] of Object.entries<JsonSchema>(sections)) {
    const settings = name === "tiers" ? [] : Object.entries(section.properties ?? {});
    for (const [key, setting] of [[name, section] as const, ...settings]) {
      expect(setting, `${name}.${key}`).toMatchObject({ description: expect.stringMatching(/\.$/) });
      if (key !== "tls") expect(setting, `${name}.${key}`).toHaveProperty("default");
    }
  }
});

interface JsonSchema {
  readonly properties?: Readonly<Record<string, JsonSchema>>;
}

// Guarantee: the path of an address, which may be a secret, is shown nowhere.
test("redact shows no path of an upstream, be it the present, the previous or one that it replaces", () => {
  const env = { UPSTREAM_URL: "https://new.example.com/5ecret" };
  const config = configOf(
    JSON.stringify({
      upstream: {
        previous_url: "https://old.example.com/5ecret",
        replaces: ["https://older.example.com/5ecret"],
      },
    }),
    env,
  );
  expect(JSON.stringify(config).match(/5ecret/g)).toHaveLength(3);
  expect(redact(config).upstream).toMatchObject({
    url: "https://new.example.com/***",
    previousUrl: "https://old.example.com/***",
    replaces: ["https://older.example.com/***"],
  });
  expect(JSON.stringify(redact(config))).not.toContain("5ecret");
});
