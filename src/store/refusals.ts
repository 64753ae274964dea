import type { Connection } from "./connection.ts";
import type { RedisNodes } from "./nodes.ts";
import { answersOf } from "./pipelines.ts";

const DAY_MS = 86_400_000;
/** Read until the day after; a day more for whoever looks back. */
const LIFETIME_SECONDS = 2 * 86_400;
/** Members kept per day, those with the most refusals. */
const MEMBERS_MAX = 10_000;

/** How often a key was refused for one reason; `outcome` is the name in the error table. */
export interface RefusalCount {
  keyId: string;
  accountId: string;
  outcome: string;
  count: number;
}

const nameOf = (nowMs: number): string => `tg:refusals:${new Date(nowMs).toISOString().slice(0, 10)}`;

/**
 * Adds what this gateway has refused since the last time to the day's counts of all gateways. Statistics, not money:
 * a call whose answer is lost may have counted.
 * @throws GatewayError `store_unavailable`
 */
export async function addRefusals(connection: Connection, counts: readonly RefusalCount[]): Promise<void> {
  if (counts.length === 0) return;
  const name = nameOf(connection.nowMs());
  await connection.ofName(name).command(async (redis) => {
    const pipe = redis.pipeline();
    for (const { keyId, accountId, outcome, count } of counts) {
      pipe.zincrby(name, count, `${keyId} ${accountId} ${outcome}`);
    }
    pipe.zremrangebyrank(name, 0, -MEMBERS_MAX - 1);
    pipe.expire(name, LIFETIME_SECONDS);
    answersOf(await pipe.exec());
  });
}

/** The most frequent refusals of a UTC day over all gateways, by key and reason, most first. */
export async function topRefusals(nodes: RedisNodes, nowMs: number, most: number): Promise<RefusalCount[]> {
  const name = nameOf(nowMs);
  const flat = await nodes.ofName(name).zrevrange(name, 0, most - 1, "WITHSCORES");
  const counts: RefusalCount[] = [];
  for (let at = 0; at + 1 < flat.length; at += 2) {
    const [keyId = "", accountId = "", outcome = ""] = (flat[at] ?? "").split(" ");
    counts.push({ keyId, accountId, outcome, count: Number(flat[at + 1]) });
  }
  return counts;
}

/** When the UTC day of this moment began, Unix ms. */
export const dayStartMs = (nowMs: number): number => Math.floor(nowMs / DAY_MS) * DAY_MS;
