import { setTimeout as pause } from "node:timers/promises";
import { Redis } from "ioredis";
import { type Attack, LARGE_ACCOUNT, MARK, type Target, TEXT_TO_VIDEO } from "../attack.ts";
import { atOnce, Connection, deadlineOf, post, Tally } from "../wire.ts";

const KEYS = 50_000;
const CONNECTIONS = 8;
const ATTACK_MS_MIN = 15_000;
/** Several seconds of the check. */
const SLICES_MIN = 100;
/** A slice takes 1 to 2 ms; where the machine has other work, its pauses count, too. */
const SCRIPT_MS_MAX = 25;
/** Calls that take less are ignored. */
const LOOKED_AT_MICROSECONDS = 200;

/** A ledger check beside a customer with 50,000 keys who generates, too. */
export const largeAccount: Attack = {
  name: "large-account",
  title: `one account has ${KEYS} keys with an open task each, and generates on ${CONNECTIONS} connections while the ledger is checked, for 15 s or until the check has read ${SLICES_MIN} slices of it`,
  durationMs: 45_000,
  accountKeys: KEYS,
  config: { store: { ledger_check_interval: "10s" } },
  async send(target) {
    const tally = new Tally();
    const latestMs = deadlineOf(target);
    const ended = new AbortController();
    const body = JSON.stringify({ prompt: MARK });
    const load = atOnce(CONNECTIONS, async (nth) => {
      const connection = await Connection.open(tally, target.url);
      const request = post(TEXT_TO_VIDEO, target.paidKeys[nth]!, body);
      while (connection && !ended.signal.aborted) {
        await connection.ask(request, latestMs);
        await pause(100);
      }
      connection?.destroy();
    });
    const { slices, longestMs } = await watchScripts(target, latestMs);
    ended.abort();
    await load;
    tally.check("the check reads the account in slices", slices >= SLICES_MIN, `${slices} slices`);
    tally.check(
      `no script takes Redis more than ${SCRIPT_MS_MAX} ms`,
      longestMs <= SCRIPT_MS_MAX,
      `${longestMs.toFixed(1)} ms`,
    );
    tally.check("its own generations are carried out", tally.count(201, 599) === 0, `${tally.count(200)}`);
    return tally;
  },
};

/** Reads from Redis which scripts have taken how long, until enough was seen. */
async function watchScripts({ redisUrl, scale }: Target, latestMs: number) {
  const redis = new Redis(redisUrl);
  await redis.config("SET", "slowlog-log-slower-than", LOOKED_AT_MICROSECONDS, "slowlog-max-len", 1000);
  await redis.slowlog("RESET");
  const fromMs = performance.now();
  let slices = 0;
  let longestMs = 0;
  const enough = (): boolean => slices >= SLICES_MIN && performance.now() >= fromMs + ATTACK_MS_MIN * scale;
  while (!enough() && performance.now() < latestMs) {
    await pause(500);
    const [entries] = (await redis.multi().slowlog("GET", 1000).slowlog("RESET").exec())!;
    for (const [, , microseconds, words] of entries![1] as [number, number, number, string[]][]) {
      if (words[0]?.toLowerCase() !== "evalsha") continue;
      longestMs = Math.max(longestMs, microseconds / 1000);
      // Of all scripts with this name among their keys, the others have fewer.
      if (words[2] === "8" && words.some((word) => word.endsWith(`:keys:${LARGE_ACCOUNT}`))) slices++;
    }
  }
  redis.disconnect();
  return { slices, longestMs };
}
