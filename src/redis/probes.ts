import { randomUUID } from "node:crypto";
import { setImmediate as nextTick } from "node:timers/promises";
import type { Redis } from "ioredis";
import { probeName } from "../records/names.ts";
import { SCRIPTS } from "../scripts/all.ts";
import { probe } from "../scripts/gateways.ts";
import type { Run } from "../scripts/script-definition.ts";
import { monotonicMs, type StoreClock } from "./calls.ts";
import { selectDatabase } from "./client.ts";
import type { Deadlines } from "./deadlines.ts";
import { StoreError } from "./reasons.ts";
import { itemOf, plainSource, scriptsOf } from "./script-runner.ts";
import { scriptSource } from "./script-source.ts";

const PROBE_ID = randomUUID();

/** The name that this process's probe writes: one of a partition, so that it is on the partition's primary. */
export const probeNameIn = (partition: number): string => probeName(partition, PROBE_ID);

/** @param options.name the name that the probe writes @param options.check what has to hold @param options.beforeUse work before it is used */
export function createProbe(options: {
  redis: Redis;
  run: Run;
  clock: StoreClock;
  within: Deadlines["within"];
  name(): string;
  check(): Promise<void>;
  beforeUse(): Promise<void>;
}): () => Promise<void> {
  const { redis, run, clock, within } = options;
  const whyNotReady = connectionErrorOf(redis);

  return async () => {
    if (redis.status === "wait" || redis.status === "end") await redis.connect().catch(() => undefined);
    if (redis.status !== "ready") throw whyNotReady();
    await within(selectDatabase(redis));
    const sentAtMs = monotonicMs();
    const { storeNowMs } = await run(probe, { name: options.name() });
    clock.learn(storeNowMs, sentAtMs);
    await options.check();
    await options.beforeUse();
  };
}

function connectionErrorOf(redis: Redis): () => Error {
  const notConnected = (): Error => new Error("not connected");
  let latest = notConnected();
  redis.on("error", (error: Error) => {
    latest = error;
  });
  redis.on("ready", () => {
    latest = notConnected();
  });
  return () => latest;
}

export async function checkUsable(
  redis: Redis,
  { name, check }: { name: string; check(redis: Redis): Promise<void> },
): Promise<void> {
  const { keys, shared, args } = itemOf(probe, { name });
  await redis.eval(scriptSource(probe), keys.length, ...keys, ...shared, ...args);
  await check(redis);
}

/** Loads scripts that Redis lacks, and runs one that writes. @param partition on this server @returns how many there are @throws Redis's error */
export async function tryScripts(redis: Redis, partition: number): Promise<number> {
  const sources: ReturnType<typeof plainSource>[] = [];
  for (const script of SCRIPTS) {
    sources.push(plainSource(script));
    // All of them in one go would keep a gateway's requests waiting.
    await nextTick();
  }
  const known = (await redis.script("EXISTS", ...sources.map(({ sha }) => sha))) as number[];
  for (const [at, { lua }] of sources.entries()) if (known[at] !== 1) await redis.script("LOAD", lua);
  await requireCommands(redis, partition, sources);
  await scriptsOf(redis).run(probe, { name: probeNameIn(partition) });
  return SCRIPTS.length;
}

/** https://redis.io/docs/latest/develop/programmability/lua-api/#redis.acl_check_cmd. A renamed command is an error there. */
const REFUSED = `#!lua flags=no-writes
local refused = {}
for _, command in ipairs(ARGV) do
  local is_known, is_allowed = pcall(redis.acl_check_cmd, command, KEYS[1])
  if not (is_known and is_allowed) then refused[#refused + 1] = command end
end
return refused`;

/** A script that may not run one of its commands stops there, and what it wrote before stays. @throws StoreError */
async function requireCommands(
  redis: Redis,
  partition: number,
  sources: readonly { lua: string }[],
): Promise<void> {
  const found = sources.flatMap(({ lua }) =>
    [...lua.matchAll(/\bcall\("([A-Z]+)"/g)].map(([, name]) => name!),
  );
  const refused = await refusedCommands(redis, partition, [...new Set(found)]);
  if (refused.length === 0) return;
  throw new StoreError(
    `a script may not run ${refused.sort().join(", ")}`,
    "give the user in REDIS_URL the rights in docs/operations/redis.md, Access, and rename no command",
  );
}

/** Names the commands that the user may not run or that Redis has renamed, without running any. @param partition on this server */
export async function refusedCommands(
  redis: Redis,
  partition: number,
  commands: readonly string[],
): Promise<string[]> {
  return (await redis.eval(REFUSED, 1, probeNameIn(partition), ...commands)) as string[];
}
