import { type Static, Type } from "typebox";
import { parseRedisAddress } from "../../domain/redis-address.ts";
import { folderRule, optionalFileRule, redisUrlRule } from "../setting-rules.ts";
import { duration, integer, section, text, toProgram } from "../setting-types.ts";

export const storeSchema = section("Redis, which holds limits, credits and tasks.", {
  redis_url: text(
    "redis://127.0.0.1:6379",
    redisUrlRule,
    "Address of Redis, without password: REDIS_URL in the environment may hold one.",
  ),
  tls_ca: text(
    "",
    optionalFileRule,
    "PEM file with the authorities that verify a rediss:// server, instead of those that Node trusts.",
  ),
  command_timeout: duration("500ms", "10ms", "30s", "How long one command may take."),
  confirm_replicas: Type.Enum(["auto", 0, 1, 2], {
    default: "auto",
    description:
      "Replicas that must have a charge before it is answered; else it is written to the journal first. auto: 0 for one server, 1 with Sentinel or a cluster.",
  }),
  confirm_timeout: duration("50ms", "1ms", "5s", "How long an answer may wait for replicas."),
  fallback_strategy: Type.Enum(["deny", "allow"], {
    default: "deny",
    description:
      "While Redis is unavailable: deny answers 503; allow passes requests of known keys unmetered and uncharged.",
  }),
  allow_max_per_key: integer(
    0,
    0,
    1_000_000_000,
    "With allow: generations and uploads of one key that one process passes through in one outage; 0 for no limit.",
  ),
  allow_no_persistence: Type.Boolean({
    default: false,
    description:
      "Uses a Redis that keeps nothing on disk, and has lost all credits after its next start; for tests and demos.",
  }),
  journal: text(
    ".tollgate/journal",
    folderRule,
    "Folder, on a disk that survives a restart, for settlements that wait while Redis is unavailable.",
  ),
  ledger_check_interval: duration(
    "1h",
    "0s",
    "30d",
    "How often one of all gateways verifies the ledger; 0s turns it off.",
  ),
  partitions: integer(
    64,
    1,
    1024,
    "Partitions that accounts are spread over; used at the very first start only.",
  ),
});

export function toStoreConfig(store: Static<typeof storeSchema>, tlsCa: string | undefined) {
  const { confirmReplicas, confirmTimeoutMs: timeoutMs, ...others } = toProgram(storeSchema, store);
  // With Sentinel or a cluster a replica may take over at any time.
  const auto = parseRedisAddress(store.redis_url).kind === "server" ? 0 : 1;
  const replicas = confirmReplicas === "auto" ? auto : confirmReplicas;
  return { ...others, tlsCa, confirm: replicas === 0 ? undefined : { replicas, timeoutMs } };
}

export const archiveSchema = section("The archive in PostgreSQL, which is used if ARCHIVE_URL is set.", {
  keep: duration(
    "7d",
    "0s",
    "3650d",
    "How long ledger entries stay in Redis once the archive has them; 0s removes them at once.",
  ),
  interval: duration("1s", "100ms", "1m", "How often a gateway looks for what the archive has not got."),
});

/** The address may contain a password. */
export const toArchiveConfig = (archive: Static<typeof archiveSchema>, url: string | undefined) => ({
  ...toProgram(archiveSchema, archive),
  url,
});
