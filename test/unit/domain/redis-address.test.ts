import fc from "fast-check";
import { expect, test } from "vitest";
import {
  holdsPassword,
  hostsIn,
  parseRedisAddress,
  parseServerAddress,
  type RedisAddress,
  RedisAddressError,
  redactRedisUrl,
} from "../../../src/domain/redis-address.ts";

const parsed = (text: string): RedisAddress => parseRedisAddress(text);

/** Why an address is refused. */
function problemOf(text: string, parse: (text: string) => unknown = parseRedisAddress): string {
  try {
    parse(text);
  } catch (error) {
    if (error instanceof RedisAddressError) return error.message;
    throw error;
  }
  return "nothing";
}

const at = (host: string, port: number) => ({ host, port });
const SERVER = { kind: "server", tls: false, db: 0 };
const SENTINEL = { kind: "sentinel", tls: false, db: 0, name: "mymaster" };
const CLUSTER = { kind: "cluster", tls: false, db: 0 };
const SENTINELS = "10.0.0.1:26379,10.0.0.2:26380,sentinel-3";
const SENTINEL_HOSTS = [at("10.0.0.1", 26379), at("10.0.0.2", 26380), at("sentinel-3", 26379)];

test.each<[string, object]>([
  ["redis://127.0.0.1:6379", { ...SERVER, hosts: [at("127.0.0.1", 6379)] }],
  ["rediss://redis.example.com.", { ...SERVER, tls: true, hosts: [at("redis.example.com.", 6379)] }],
  ["REDIS://redis:/", { ...SERVER, hosts: [at("redis", 6379)] }],
  ["redis://[0:0::1]:7000/15", { ...SERVER, hosts: [at("::1", 7000)], db: 15 }],
  ["redis://my_redis?family=6", { ...SERVER, hosts: [at("my_redis", 6379)], family: 6 }],
  ["redis://:p%40ss%2F@h:1", { ...SERVER, hosts: [at("h", 1)], password: "p@ss/" }],
  ["redis://:p@s:s,@h:1", { ...SERVER, hosts: [at("h", 1)], password: "p@s:s," }],
  ["redis://app@h", { ...SERVER, hosts: [at("h", 6379)], username: "app", password: "" }],
  ["redis://app:%25@h/2", { ...SERVER, hosts: [at("h", 6379)], username: "app", password: "%", db: 2 }],
  [`redis+sentinel://${SENTINELS}/mymaster`, { ...SENTINEL, hosts: SENTINEL_HOSTS }],
  [
    `rediss+sentinel://app:hush@${SENTINELS}/my-master.1?db=3&sentinel_user=s&sentinel_password=a+b%26c`,
    {
      ...SENTINEL,
      tls: true,
      hosts: SENTINEL_HOSTS,
      name: "my-master.1",
      username: "app",
      password: "hush",
      db: 3,
      sentinelUsername: "s",
      sentinelPassword: "a+b&c",
    },
  ],
  [
    `redis+sentinel://${SENTINELS}/mymaster?sentinel_password=p`,
    { ...SENTINEL, hosts: SENTINEL_HOSTS, sentinelPassword: "p" },
  ],
  [
    "redis+cluster://h1:7000,[::1],h3",
    { ...CLUSTER, hosts: [at("h1", 7000), at("::1", 6379), at("h3", 6379)] },
  ],
  ["rediss+cluster://:p%40@h1:7000/", { ...CLUSTER, tls: true, hosts: [at("h1", 7000)], password: "p@" }],
])("%s is understood", (text, address) => {
  expect(parsed(text)).toEqual(address);
});

const SUCH_AS =
  "must be an address such as redis://127.0.0.1:6379 (rediss:// for TLS), special characters percent-encoded";

test.each([
  ["localhost:6379", SUCH_AS],
  ["", SUCH_AS],
  ["redis://a b", SUCH_AS],
  ["http://redis", SUCH_AS],
  ["redis-cluster://h", `${SUCH_AS}; did you mean redis+cluster://?`],
  ["redis+sentinels://h/m", `${SUCH_AS}; did you mean redis+sentinel://?`],
  ["redis://", "must name a host, such as redis://127.0.0.1:6379"],
  ["redis:///tmp/redis.sock", "must name a host, such as redis://127.0.0.1:6379"],
  ["redis://:6379", "must name a host before each port, such as redis://127.0.0.1:6379"],
  ["redis://h_!", "must have host names or IP addresses before its ports"],
  ["redis://h:0", "must have ports from 1 to 65535, digits only"],
  ["redis://h:65536", "must have ports from 1 to 65535, digits only"],
  ["redis+cluster://h:1,h:x", "must have ports from 1 to 65535, digits only"],
  ["redis://::1:6379", "must have IPv6 addresses in brackets, such as [::1]:6379"],
  ["redis://[::1", "must have IPv6 addresses in brackets, such as [::1]:6379"],
  ["redis://[::1%25eth0]", "must have valid IPv6 addresses in its brackets, without a zone"],
  ["redis://[1.2.3.4]:1", "must have valid IPv6 addresses in its brackets, without a zone"],
  ["redis://a:1,b:2", "must have one host; a list of hosts is for redis+sentinel:// and redis+cluster://"],
  ["redis+cluster://a:1,,b:2", "must have no empty host between its commas"],
  ["redis+sentinel://a:1,/m", "must have no empty host between its commas"],
  ["redis://h/abc", "must have no path but a database number, such as /0"],
  ["redis://h#1", "must have no fragment; a # in user or password is %23"],
  ["redis://h?db=1", "must have its database as path, such as /1, not as parameter"],
  ["redis://h?famly=6", "must have no parameter but family; did you mean family?"],
  ["redis://h?family=5", "must have 4, 6 or 0 (both) as family"],
  ["redis://u:%zz@h", "must have special characters of user and password percent-encoded, a % itself as %25"],
  [
    "redis+sentinel://h:1",
    "must end with what the Sentinels call the primary, such as redis+sentinel://10.0.0.1:26379/mymaster",
  ],
  ["redis+sentinel://h:1/m/0", "must have nothing behind the name of the primary; a database is ?db=1"],
  ["redis+sentinel://h:1/m%20m", "must name the primary in letters, digits, points, - and _"],
  ["redis+sentinel://h/m?db=x", "must have a number as db, such as ?db=1"],
  ["redis+sentinel://h/m?db=1&db=2", "must have each parameter once"],
  ["redis+sentinel://h/m?sentinel_password=", "must have a value for sentinel_password"],
  ["redis+sentinel://h/m?sentinel_user=u", "must have sentinel_password where it has sentinel_user"],
  [
    "redis+sentinel://h/m?sentinelpasword=x",
    "must have no parameter but db, sentinel_user, sentinel_password, family; did you mean sentinel_password?",
  ],
  ["redis+cluster://h/0", "must have no path: Redis Cluster has one database only"],
  ["redis+cluster://h?db=0", "must have no db: Redis Cluster has one database only"],
  [
    "redis+cluster://u:p@a:1,u:p@b:2",
    "must have user and password once, before the first host, an @ in them as %40 and a comma as %2C",
  ],
])("%s is refused: it %s", (text, problem) => {
  expect(problemOf(text)).toBe(problem);
});

test.each([`redis+sentinel://${SENTINELS}/mymaster`, "rediss+cluster://h1,h2"])(
  "%s is refused where one server is needed",
  (text) => {
    expect(problemOf(text, parseServerAddress)).toMatch(/the address of one server is needed/);
  },
);

test.each([
  ["redis://h", "redis://h"],
  ["redis://hush@h:1/2?family=4", "redis://***@h:1/2?family=4"],
  ["redis://app:@h", "redis://app:@h"],
  ["redis://app:hush@h:1/2?family=4", "redis://app:***@h:1/2?family=4"],
  ["redis://:hu:sh@ed@h", "redis://:***@h"],
  ["rediss+cluster://app:hush@h1:1,h2:2", "rediss+cluster://app:***@h1:1,h2:2"],
  [
    "redis+sentinel://app:hush@h1,h2/m?sentinel_user=s&sentinel_password=hush2&db=1",
    "redis+sentinel://app:***@h1,h2/m?sentinel_user=s&sentinel_password=***&db=1",
  ],
  ["app:hush@h", "***"],
  ["redis://:hush@h/x", "***"],
])("%s is logged as %s", (text, logged) => {
  expect(redactRedisUrl(text)).toBe(logged);
});

test.each<[string, boolean]>([
  ["redis://127.0.0.1:6379", false],
  ["redis://app@h:6379/0", false],
  ["redis://app:@h", false],
  ["redis+cluster://h1:1,h2:2", false],
  ["redis+sentinel://h1:1/m?sentinel_user=u", false],
  ["redis://:hush@h", true],
  ["redis+cluster://app:hush@h1:1,h2:2", true],
  ["redis+sentinel://h1:1/m?db=1&sentinel_password=hush", true],
  // Not valid, but a file must not hold it either.
  ["app:hush@h:6379", true],
  ["redis://:hu/sh@h", true],
  ["redis://h?password=hush", true],
])("whether %s holds a password: %s", (text, holds) => {
  expect(holdsPassword(text)).toBe(holds);
});

test("messages name the hosts only", () => {
  expect(hostsIn("redis://app:hush@h:1/2")).toBe("h:1");
  expect(hostsIn("redis+sentinel://app:hush@h1:1,[::1]:2/m?sentinel_password=p")).toBe("h1:1,[::1]:2");
  expect(hostsIn("hush")).toBe("the address in REDIS_URL");
});

const words = fc.stringMatching(/^[a-z0-9]{1,12}$/);
/** Whatever a person takes as user or password. */
const secrets = fc.string({ unit: "binary", minLength: 1, maxLength: 20 });
const ports = fc.integer({ min: 1, max: 65_535 });
const hostNames = fc.oneof(words, fc.ipV4(), fc.domain());
const hosts = fc.record({ host: hostNames, port: ports });
const credentials = fc.oneof(
  fc.constant({}),
  fc.record({ password: secrets }),
  fc.record({ username: secrets, password: fc.oneof(secrets, fc.constant("")) }),
);
const common = { tls: fc.boolean(), credentials };
const addresses: fc.Arbitrary<RedisAddress> = fc
  .oneof(
    fc.record({
      ...common,
      kind: fc.constant("server" as const),
      hosts: fc.array(hosts, { minLength: 1, maxLength: 1 }),
      more: fc.record({ db: fc.nat(99) }),
    }),
    fc.record({
      ...common,
      kind: fc.constant("cluster" as const),
      hosts: fc.array(hosts, { minLength: 1, maxLength: 6 }),
      more: fc.constant({ db: 0 }),
    }),
    fc.record({
      ...common,
      kind: fc.constant("sentinel" as const),
      hosts: fc.array(hosts, { minLength: 1, maxLength: 6 }),
      more: fc.record(
        { db: fc.nat(99), name: words, sentinelPassword: secrets, family: fc.constantFrom(0, 4, 6) },
        { requiredKeys: ["db", "name"] },
      ),
    }),
  )
  .map(({ credentials: user, more, ...rest }) => ({ ...rest, ...user, ...more }));

/** An address as an operator would write it. */
function written(address: RedisAddress): string {
  const { kind, tls, username = "", password, db, family, name, sentinelPassword } = address;
  const scheme = `${tls ? "rediss" : "redis"}${kind === "server" ? "" : `+${kind}`}`;
  const user =
    password === undefined ? "" : `${encodeURIComponent(username)}:${encodeURIComponent(password)}@`;
  const list = address.hosts.map(({ host, port }) => `${host}:${port}`).join(",");
  const path = { server: `/${db}`, sentinel: `/${name}`, cluster: "" }[kind];
  const parameters = [
    ...(kind === "sentinel" ? [`db=${db}`] : []),
    ...(sentinelPassword === undefined ? [] : [`sentinel_password=${encodeURIComponent(sentinelPassword)}`]),
    ...(family === undefined ? [] : [`family=${family}`]),
  ];
  return `${scheme}://${user}${list}${path}${parameters.length === 0 ? "" : `?${parameters.join("&")}`}`;
}

test("every address that is written is read back", () => {
  fc.assert(
    fc.property(addresses, (address) => {
      expect(parsed(written(address))).toEqual(address);
    }),
    { numRuns: 2000 },
  );
});

// Guarantee: no message, log line or page holds a password, valid address or not.
test("no message and no redacted address holds a part of a password", () => {
  const secret = "Hush7Hush";
  const mistake = fc.record({
    at: fc.nat(200),
    remove: fc.nat(3),
    insert: fc.constantFrom("", ":", "/", "@", "?", "#", ",", "%", "[", " "),
  });
  fc.assert(
    fc.property(addresses, fc.array(mistake, { maxLength: 4 }), (address, mistakes) => {
      const holder = {
        ...address,
        password: secret,
        ...(address.kind === "sentinel" ? { sentinelPassword: secret } : {}),
      };
      let text = written(holder);
      for (const { at: from, remove, insert } of mistakes)
        text = text.slice(0, from) + insert + text.slice(from + remove);
      const shown = problemOf(text).toLowerCase();
      expect(shown).not.toContain("hush");
      expect(shown).toMatch(/^(nothing|must )/);
      if (problemOf(text) !== "nothing" || mistakes.length === 0)
        expect(redactRedisUrl(text).toLowerCase()).not.toContain("hush");
    }),
    { numRuns: 2000 },
  );
});
