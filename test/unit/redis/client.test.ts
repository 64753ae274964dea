import { Redis } from "ioredis";
import { expect, test } from "vitest";
import { createClient } from "../../support/client.ts";

// Guarantee: no command that moves money is ever sent a second time by the library. Its defaults would.
test("the client neither resends, retries nor queues", () => {
  const client = createClient("redis://127.0.0.1:1", 250);
  expect(client.options).toMatchObject({
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    enableOfflineQueue: false,
    enableAutoPipelining: false,
    commandTimeout: 250,
  });
  client.disconnect();
});

// Guarantee: many gateways that lose a server at one moment do not come back to it at one moment.
test("delays between attempts to connect differ, and have a bound", () => {
  const client = createClient("redis://127.0.0.1:1", 250);
  const delays = Array.from({ length: 50 }, (_, attempt) => client.options.retryStrategy?.(attempt + 30));
  expect(new Set(delays).size).toBeGreaterThan(40);
  for (const delay of delays) expect(delay).toBeGreaterThan(700);
  for (const delay of delays) expect(delay).toBeLessThanOrEqual(1250);
  client.disconnect();
});

// Guarantee: an address means what the client library takes it for.
test.each([
  "redis://127.0.0.1",
  "rediss://redis.example.com:6380/3",
  "redis://:p%40ss@h:1/2",
  "redis://app@h",
  "redis://app:a:b@h?family=6",
  "redis://[::1]:7000/",
])("%s is connected to as the library itself would", (url) => {
  const client = createClient(url, 250);
  const reference = new Redis(url, { lazyConnect: true });
  const meaningOf = ({ host, port, username, password, db, family }: Redis["options"]) => ({
    host,
    port,
    username: username || null,
    password,
    db,
    family,
  });
  expect(meaningOf(client.options)).toEqual(meaningOf(reference.options));
  expect(client.options.tls !== undefined).toBe(url.startsWith("rediss:"));
  for (const one of [client, reference]) one.disconnect();
});
