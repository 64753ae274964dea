import { readFileSync } from "node:fs";
import { getHeapStatistics } from "node:v8";

export interface ProcessLimits {
  readonly openFiles: number;
  readonly heapBytes: number;
}

/** The usual limit of a shell. */
const OPEN_FILES_UNKNOWN = 1024;

let found: ProcessLimits | undefined;

/** Read once: Node raises the limit before our code runs. */
export function processLimits(): ProcessLimits {
  found ??= { openFiles: openFilesMax(), heapBytes: getHeapStatistics().heap_size_limit };
  return found;
}

function openFilesMax(): number {
  try {
    const line = /^Max open files +(\d+|unlimited) /m.exec(readFileSync("/proc/self/limits", "utf8"))?.[1];
    if (line === "unlimited") return Number.MAX_SAFE_INTEGER;
    return line === undefined ? OPEN_FILES_UNKNOWN : Number(line);
  } catch {
    return OPEN_FILES_UNKNOWN;
  }
}

const KIB = 1024;
const MIB = 1024 * KIB;
const CONNECTIONS_MAX = 10_000;
const CONNECTIONS_PER_ADDRESS_MAX = 1000;
/** Admin port, Redis, log, journal and files that are read. */
const OTHER_FILES = 256;

interface Bounds {
  max_connections: number | "auto";
  max_connections_per_address: number | "auto";
  max_requests_in_flight: number | "auto";
  max_body_bytes_in_flight: number | "auto";
  workers: number;
  upstream: { connections: number; poll_connections: number; upload_connections: number };
}

/** Numbers are divided between workers; `auto` is per process. Descriptors for Redis, upstream and admin port are reserved. */
export function processBounds(given: Bounds, { openFiles, heapBytes }: ProcessLimits) {
  const share = (value: number | "auto", automatic: number): number =>
    value === "auto" ? automatic : Math.ceil(value / given.workers);
  const { connections, poll_connections, upload_connections } = given.upstream;
  const reserved = connections + poll_connections + upload_connections + OTHER_FILES;
  const spare = Math.max(openFiles - reserved, Math.floor(openFiles / 4), 1);
  const maxConnections = Math.min(spare, share(given.max_connections, CONNECTIONS_MAX));
  const perAddress = Math.min(CONNECTIONS_PER_ADDRESS_MAX, Math.ceil(maxConnections / 4));
  const inFlight = Math.min(16_384, Math.max(256, Math.floor(heapBytes / (256 * KIB))));
  const eighth = Math.min(64 * MIB, Math.floor(heapBytes / 8));
  return {
    maxConnections,
    maxConnectionsPerAddress: share(given.max_connections_per_address, perAddress),
    maxRequestsInFlight: share(given.max_requests_in_flight, inFlight),
    maxBodyBytesInFlight: Math.max(256 * KIB, share(given.max_body_bytes_in_flight, eighth)),
    maxUnreadBytes: eighth,
  };
}
