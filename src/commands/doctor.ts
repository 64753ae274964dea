import { once } from "node:events";
import { connect as connectTcp } from "node:net";
import type { Command } from "commander";
import type { Redis } from "ioredis";
import { type Config, loadConfig } from "../config/config.ts";
import { storeNowMs } from "../store/keys.ts";
import { META } from "../store/names.ts";
import { checkConfig } from "./config.ts";
import { command, connect, placeOf, print, redisUrl } from "./context.ts";

const UPSTREAM_TIMEOUT_MS = 2000;
/** Expiry times are given by people's clocks and decided by Redis's. */
const CLOCK_DIFFERENCE_MAX_MS = 5000;
const MEMORY_SHARE_MAX = 0.9;

/** One thing that was looked at; `message` says what to do when it is not right. */
export interface Check {
  name: string;
  ok: boolean;
  message: string;
}

/** `tollgate doctor` */
export function doctorCommand(): Command {
  return command("doctor", "check everything that a gateway needs, and say what to do").action(
    async (flags: { json?: boolean }) => {
      const { problems, text: configText } = checkConfig();
      const config = problems.length === 0 ? loadConfig({ env: process.env }) : undefined;
      const checks = [
        check("config", problems.length === 0, "valid", configText),
        ...(await storeChecks(config)),
        await upstreamCheck(config?.upstream.url),
      ];
      const ok = checks.every((one) => one.ok);
      const text = checks.map((one) => `${one.ok ? "ok  " : "FAIL"}  ${one.name}: ${one.message}`).join("\n");
      print({ json: { ok, checks }, text, ok }, flags);
    },
  );
}

const check = (name: string, ok: boolean, good: string, bad: string): Check => ({
  name,
  ok,
  message: ok ? good : bad,
});

async function storeChecks(config: Config | undefined): Promise<Check[]> {
  let redis: Redis;
  let place: string;
  try {
    const url = redisUrl();
    place = placeOf(url);
    redis = await connect(url);
  } catch (error) {
    return [check("redis", false, "", error instanceof Error ? error.message : String(error))];
  }
  try {
    const sentMs = Date.now();
    const nowMs = await storeNowMs(redis);
    const aheadMs = Math.round(nowMs - (sentMs + Date.now()) / 2);
    const info = readInfo(await redis.info());
    const partitions = await redis.hget(META, "partitions");
    return [
      check("redis", true, `answers at ${place}`, ""),
      ...infoChecks(info),
      clockCheck(aheadMs),
      partitionsCheck(partitions, config?.store.partitions),
    ];
  } catch (error) {
    return [check("redis", false, "", `answers with an error: ${(error as Error).message}`)];
  } finally {
    redis.disconnect();
  }
}

/** The fields of INFO. */
export function readInfo(text: string): ReadonlyMap<string, string> {
  return new Map([...text.matchAll(/^(\w+):([^\r\n]*)/gm)].map(([, name = "", value = ""]) => [name, value]));
}

/** What INFO tells of a Redis that is to keep money. */
export function infoChecks(info: ReadonlyMap<string, string>): Check[] {
  const version = info.get("redis_version") ?? "unknown";
  const policy = info.get("maxmemory_policy");
  const role = info.get("role") ?? "master";
  return [
    check("version", Number.parseInt(version, 10) >= 7, version, `Redis is ${version}; use 7.0 or newer`),
    check("role", role === "master", role, "this is a read-only replica; point REDIS_URL to the primary"),
    check(
      "persistence",
      info.get("aof_enabled") === "1" && info.get("aof_last_write_status") !== "err",
      "append-only file is on",
      info.get("aof_enabled") === "1"
        ? "the append-only file cannot be written; see Redis's log and its disk"
        : "the append-only file is off, so a restart loses credits; set `appendonly yes` and `appendfsync everysec`",
    ),
    memoryCheck(Number(info.get("used_memory") ?? 0), Number(info.get("maxmemory") ?? 0)),
    check(
      "eviction",
      policy === undefined || policy === "noeviction",
      policy ?? "unknown",
      `maxmemory-policy is ${policy}, which may evict money and limits; set \`maxmemory-policy noeviction\``,
    ),
  ];
}

/** Without memory to spare every generation is refused, while what is under way still settles. */
function memoryCheck(usedBytes: number, maxBytes: number): Check {
  const megabytes = (bytes: number): string => `${Math.round(bytes / 1_048_576)} MiB`;
  const share = maxBytes === 0 ? 0 : usedBytes / maxBytes;
  const used = `${megabytes(usedBytes)} used${maxBytes === 0 ? ", no limit set" : ` of ${megabytes(maxBytes)}`}`;
  return check(
    "memory",
    share < MEMORY_SHARE_MAX,
    used,
    `${used}; raise maxmemory before generations are refused`,
  );
}

function clockCheck(aheadMs: number): Check {
  const difference = `Redis's clock is ${Math.abs(aheadMs)} ms ${aheadMs < 0 ? "behind" : "ahead of"} this one`;
  return check(
    "clock",
    Math.abs(aheadMs) <= CLOCK_DIFFERENCE_MAX_MS,
    difference,
    `${difference}; limits, days and expiry follow Redis's clock: let NTP set both`,
  );
}

function partitionsCheck(fixed: string | null, configured: number | undefined): Check {
  if (fixed === null) return check("partitions", true, "a new store; its first use fixes them", "");
  const differs = configured !== undefined && configured !== Number(fixed);
  const note = differs ? ` (the config's ${configured} counted at the first start only)` : "";
  const good = /^\d{1,4}$/.test(fixed) && Number(fixed) > 0;
  return check("partitions", good, `${fixed}${note}`, `${META} is damaged: partitions are ${fixed}`);
}

async function upstreamCheck(url: string | undefined): Promise<Check> {
  if (url === undefined) return check("upstream", false, "", "not looked for: the config is not valid");
  const { hostname, port, protocol, host } = new URL(url);
  const socket = connectTcp({
    host: hostname.replace(/^\[|\]$/g, ""),
    port: Number(port || (protocol === "https:" ? 443 : 80)),
  });
  try {
    await once(socket, "connect", { signal: AbortSignal.timeout(UPSTREAM_TIMEOUT_MS) });
    return check("upstream", true, `${host} takes connections`, "");
  } catch (error) {
    const timedOut = error instanceof Error && error.name === "AbortError";
    const why = timedOut ? "no answer within 2 seconds" : (error as Error).message;
    return check("upstream", false, "", `${host} cannot be reached (${why}); start it, or set UPSTREAM_URL`);
  } finally {
    socket.destroy();
  }
}
