export const CHECK_STATUSES = ["ok", "warn", "fail"] as const;

/** All checks of `tollgate doctor` and of a running gateway. */
export const CHECK_NAMES = [
  "ready",
  "config",
  "certificates",
  "redis",
  "primary",
  "version",
  "role",
  "persistence",
  "replicas",
  "memory",
  "eviction",
  "clock",
  "latency",
  "replica",
  "min-replicas",
  "priority",
  "clocks",
  "settings",
  "cluster",
  "sentinels",
  "store",
  "partitions",
  "layout",
  "history",
  "frozen",
  "open tasks",
  "tiers",
  "scripts",
  "journal",
  "ledger",
  "archive",
  "upstream",
  "generation",
  "descriptors",
  "proxies",
] as const;
export type CheckName = (typeof CHECK_NAMES)[number];

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

/** Checks of one name. */
export const checksOf = (name: CheckName) => ({
  good: (message: string): Check => good(name, message),
  warning: (message: string, advice: string): Check => warning(name, message, advice),
  failed: (message: string, advice: string): Check => failed(name, message, advice),
});

/** @returns `ok` without any check */
export const worstOf = (checks: readonly Check[]): Check["status"] =>
  CHECK_STATUSES.findLast((one) => checks.some(({ status }) => status === one)) ?? "ok";
