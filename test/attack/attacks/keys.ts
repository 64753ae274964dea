import { setTimeout as pause } from "node:timers/promises";
import { type Attack, HONEST_ADDRESS, MARK, type Target, TEXT_TO_VIDEO } from "../attack.ts";
import { atOnce, Connection, deadlineOf, get, pipeline, post, scaled, Tally } from "../wire.ts";

/** One customer's flood at the store. */
export const oneKey: Attack = {
  name: "one-key",
  title:
    "`deny`: 40,000 generations of one key without credits, 100 connections with 100 of them pipelined on each, in waves",
  durationMs: 12_000,
  async send(target) {
    const tally = new Tally();
    const body = JSON.stringify({ prompt: MARK });
    const request = (): string => post(TEXT_TO_VIDEO, target.poorKey, body);
    const connections = scaled(target, 100);
    await pipeline(tally, target, { connections, depth: 100, total: connections * 400, request });
    tally.check(
      "a key without credits gets no video",
      tally.count(200) === 0,
      `${tally.count(200)} answered 200`,
    );
    return tally;
  },
};

const CALLS_PER_KEY = 10;

/** One account whose generations the upstream takes its time for: more of them than there are connections. */
export const hangingGenerations: Attack = {
  name: "hanging-generations",
  title:
    "260 generations at a time of 26 keys of one account, each of which the upstream answers after 3 s, for 9 s",
  durationMs: 9000,
  async send(target) {
    const tally = new Tally();
    const untilMs = deadlineOf(target);
    const body = JSON.stringify({ prompt: `${MARK} [sandbox: delay=3s]` });
    const { paidKeys } = target;
    // Not scaled: fewer would not fill the connections.
    await atOnce(paidKeys.length * CALLS_PER_KEY, async (nth) => {
      const connection = await Connection.open(tally, target.url);
      const request = post(TEXT_TO_VIDEO, paidKeys[nth % paidKeys.length]!, body);
      while (connection && !connection.closed && performance.now() < untilMs)
        await connection.ask(request, untilMs);
      connection?.destroy();
    });
    tally.check(
      "its own generations are carried out",
      tally.count(200) > 100,
      `${tally.count(200)} answered`,
    );
    return tally;
  },
};

const TRIES_MAX = 2;
const RETRY_MS = 1000;

/** One address guesses keys; another customer behind it has a good key that this gateway has not met. */
export const unknownKeys: Attack = {
  name: "unknown-keys",
  title:
    "1,000 unknown keys from the address of the honest customer, then a good key that the gateway has not seen",
  durationMs: 8000,
  async send(target) {
    const tally = new Tally();
    const untilMs = deadlineOf(target);
    const from = HONEST_ADDRESS;
    let guessed = 0;
    await atOnce(10, async () => {
      const connection = await Connection.open(tally, target.url, { from });
      for (; guessed < scaled(target, 1000); ) {
        await connection?.ask(get("/api/v1/credits", `sk_guessed_${target.seed}_${guessed++}`), untilMs);
      }
      connection?.destroy();
    });
    tally.check("no unknown key is taken", tally.count(200) === 0, `${tally.count(200)} answered 200`);
    const statuses = await sendTwice(tally, target, from);
    tally.check(
      "a good key that the gateway has not seen is taken, at once or a second later",
      statuses.at(-1) === 200,
      `answered ${statuses.join(", then ")}`,
    );
    return tally;
  },
};

/** Asks with the unseen key, and once more a second after a 429. @returns the statuses, oldest first */
async function sendTwice(tally: Tally, target: Target, from: string): Promise<number[]> {
  // In its own time, however long the guesses took.
  const untilMs = deadlineOf(target);
  const statuses: number[] = [];
  const connection = await Connection.open(tally, target.url, { from });
  while (connection && statuses.length < TRIES_MAX) {
    if (statuses.length > 0) await pause(RETRY_MS);
    const status = await connection.ask(get("/api/v1/credits", target.unseenKey), untilMs);
    statuses.push(status);
    if (status !== 429) break;
  }
  connection?.destroy();
  return statuses;
}
