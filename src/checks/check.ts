export const CHECK_STATUSES = ["ok", "warn", "fail"] as const;

/** All checks of `tollgate doctor` and of a running gateway, each with its section of the runbooks. */
const SECTIONS = {
  ready: "incidents.md",
  config: "alerts-gateway.md#tollgatecheckfailed",
  certificates: "alerts-gateway.md#tollgatecertificateexpires",
  redis: "alerts-redis.md#tollgatestoredegraded",
  primary: "alerts-redis.md#tollgateprimaryaway",
  version: "redis.md",
  role: "alerts-redis.md#tollgatestorerefuses",
  persistence: "alerts-redis.md#tollgateredisnotpersistent",
  replicas: "alerts-redis.md#tollgatereplicasmissing",
  memory: "alerts-redis.md#tollgateredismemorylow",
  eviction: "alerts-redis.md#tollgatestorerefuses",
  clock: "alerts-redis.md#tollgateredisclockskewed",
  latency: "alerts-redis.md#tollgatestoreslow",
  replica: "alerts-redis.md#tollgatereplicalag",
  "min-replicas": "several-redis.md",
  priority: "several-redis.md",
  clocks: "alerts-redis.md#tollgateredisclockskewed",
  settings: "redis.md",
  cluster: "redis-cluster.md",
  sentinels: "alerts-redis.md#tollgateplacementserverssilent",
  store: "alerts-redis.md#tollgatestorereplaced",
  partitions: "redis.md",
  layout: "upgrade.md",
  history: "alerts-redis.md#tollgatestoreolder",
  frozen: "alerts-redis.md#tollgatepartitionsfrozen",
  "open tasks": "alerts-upstream.md#tollgateupstreamunroutable",
  tiers: "alerts-gateway.md#tollgatetierunknown",
  scripts: "alerts-redis.md#tollgatestorerefuses",
  journal: "alerts-redis.md#tollgatesettlementswaiting",
  ledger: "alerts-ledger.md#tollgateledgerdrift",
  archive: "alerts-ledger.md#tollgatearchivelag",
  upstream: "alerts-upstream.md#tollgateupstreamfailing",
  generation: "alerts-upstream.md#tollgateupstreamfailing",
  descriptors: "alerts-gateway.md#tollgatefiledescriptorslow",
  proxies: "alerts-gateway.md#tollgateproxynottrusted",
} as const;
export const CHECK_NAMES = Object.keys(SECTIONS) as CheckName[];
export type CheckName = keyof typeof SECTIONS;

export interface Check {
  name: CheckName;
  /** False when it must be mended: then the exit code is 1. */
  ok: boolean;
  status: (typeof CHECK_STATUSES)[number];
  message: string;
  advice?: string;
}

const checkOf =
  (status: Check["status"]) =>
  (name: CheckName, message: string, advice: string): Check => ({
    name,
    ok: status !== "fail",
    status,
    message,
    advice,
  });

export const good = (name: CheckName, message: string): Check => ({ name, ok: true, status: "ok", message });
/** Works, but deserves a look. */
export const warning = checkOf("warn");
/** Must be mended before the gateway can be relied on. */
export const failed = checkOf("fail");

export const checksOf = (name: CheckName) => ({
  good: (message: string): Check => good(name, message),
  warning: (message: string, advice: string): Check => warning(name, message, advice),
  failed: (message: string, advice: string): Check => failed(name, message, advice),
});

export const worstOf = (checks: readonly Check[]): Check["status"] =>
  CHECK_STATUSES.findLast((one) => checks.some(({ status }) => status === one)) ?? "ok";

export const runbookOf = (name: CheckName): string => `docs/operations/${SECTIONS[name]}`;
