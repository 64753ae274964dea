import { readFileSync } from "node:fs";
import { getHeapStatistics } from "node:v8";

/** The limits of this process, set by the system and by V8. */
export interface ProcessLimits {
  /** Files and sockets that may be open at a time. */
  readonly openFiles: number;
  /** Bytes of JavaScript's heap. */
  readonly heapBytes: number;
}

/** Used if the system does not tell: the usual limit of a shell. */
const OPEN_FILES_UNKNOWN = 1024;

let found: ProcessLimits | undefined;

/** Read once, since Node raises the limit of open files to its maximum before any of our code runs. */
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
/** The admin port's connections, those refused with an answer, Redis, the log, the journal, and files that are read. */
const OTHER_FILES = 256;

interface Bounds {
  max_connections: number | "auto";
  max_connections_per_address: number | "auto";
  max_requests_in_flight: number | "auto";
  max_body_bytes_in_flight: number | "auto";
  workers: number;
  /** Connections of one process to the upstream. */
  upstream: { connections: number; poll_connections: number; upload_connections: number };
}

/**
 * The bounds of one process. A number in the configuration is for all workers together; `auto` is what this process
 * can carry. Connections never use the file descriptors that Redis, the upstream and the admin port need.
 */
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
    // Each worker must be able to hold one whole body.
    maxBodyBytesInFlight: Math.max(256 * KIB, share(given.max_body_bytes_in_flight, eighth)),
    maxUnreadBytes: eighth,
  };
}
