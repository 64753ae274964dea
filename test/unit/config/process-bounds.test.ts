import { expect, test } from "vitest";
import { processBounds, processLimits } from "../../../src/config/process-bounds.ts";

const MIB = 1024 * 1024;
const AUTO = {
  max_connections: "auto",
  max_connections_per_address: "auto",
  max_requests_in_flight: "auto",
  max_body_bytes_in_flight: "auto",
  workers: 1,
  upstream: { connections: 256, poll_connections: 64, upload_connections: 128 },
} as const;
const ROOMY = { openFiles: 1_000_000, heapBytes: 4096 * MIB };

test("auto follows the limit of open files and the memory, and leaves descriptors for Redis, upstream and admin port", () => {
  expect(processBounds(AUTO, ROOMY)).toEqual({
    maxConnections: 10_000,
    maxConnectionsPerAddress: 1000,
    maxRequestsInFlight: 16_384,
    maxBodyBytesInFlight: 64 * MIB,
    maxUnreadBytes: 64 * MIB,
  });
  expect(processBounds(AUTO, { openFiles: 1024, heapBytes: 256 * MIB })).toEqual({
    maxConnections: 320,
    maxConnectionsPerAddress: 80,
    maxRequestsInFlight: 1024,
    maxBodyBytesInFlight: 32 * MIB,
    maxUnreadBytes: 32 * MIB,
  });
  // Too few for the upstream's pools: a quarter of them, so that something is left.
  expect(processBounds(AUTO, { openFiles: 256, heapBytes: 256 * MIB }).maxConnections).toBe(64);
});

test("numbers are for all workers together, and never above what the process may open", () => {
  const given = {
    ...AUTO,
    max_connections: 900,
    max_connections_per_address: 10,
    max_requests_in_flight: 100,
    max_body_bytes_in_flight: 64 * MIB,
    workers: 4,
  };
  expect(processBounds(given, ROOMY)).toMatchObject({
    maxConnections: 225,
    maxConnectionsPerAddress: 3,
    maxRequestsInFlight: 25,
    maxBodyBytesInFlight: 16 * MIB,
  });
  const many = { ...AUTO, max_connections: 900_000 };
  expect(processBounds(many, { openFiles: 4096, heapBytes: 4096 * MIB }).maxConnections).toBe(3392);
});

// Guarantee: the upstream's connections of every kind have descriptors that no client takes.
test.each(["connections", "poll_connections", "upload_connections"] as const)(
  "more upstream.%s leave as many fewer to clients",
  (name) => {
    const most = { ...AUTO, max_connections: 900_000 };
    const bounds = (upstream: Record<keyof typeof AUTO.upstream, number>) =>
      processBounds({ ...most, upstream }, { ...ROOMY, openFiles: 8192 });
    const more = { ...AUTO.upstream, [name]: AUTO.upstream[name] + 1000 };
    expect(bounds(AUTO.upstream).maxConnections - bounds(more).maxConnections).toBe(1000);
  },
);

test("the limits of this process are known", () => {
  const { openFiles, heapBytes } = processLimits();
  expect(openFiles).toBeGreaterThanOrEqual(64);
  expect(heapBytes).toBeGreaterThan(32 * MIB);
});
