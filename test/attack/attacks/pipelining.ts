import { setTimeout as pause } from "node:timers/promises";
import { type Attack, MARK, type Target, TEXT_TO_VIDEO } from "../attack.ts";
import { atOnce, Connection, deadlineOf, get, pipeline, post, scaled, Tally } from "../wire.ts";

const CREDITS = "/api/v1/credits";
const MB = 1_000_000;
const ALLOW = { store: { fallback_strategy: "allow" } };

/** Generations of a key without credits, one after the other, while something else loads the gateway. */
async function tryGenerations(tally: Tally, target: Target): Promise<void> {
  const untilMs = deadlineOf(target);
  const body = JSON.stringify({ prompt: MARK });
  const before = { given: 0 };
  await atOnce(4, async () => {
    while (performance.now() < untilMs) {
      const connection = await Connection.open(tally, target.url);
      const status = await connection?.ask(post(TEXT_TO_VIDEO, target.poorKey, body), untilMs);
      if (status === 200) before.given++;
      connection?.destroy();
      await pause(20);
    }
  });
  tally.check("a key without credits gets no video", before.given === 0, `${before.given} answered 200`);
}

/** `allow`: a key without credits loads the gateway so that it takes Redis for away. */
export const allowCredits: Attack = {
  name: "allow-credits",
  title:
    "`allow`: 100 connections pipeline 400 `GET /credits` each, then 100 each in waves, and one key without credits asks for videos meanwhile",
  durationMs: 12_000,
  config: ALLOW,
  async send(target) {
    const tally = new Tally();
    const connections = scaled(target, 100);
    const request = (): string => get(CREDITS, target.poorKey);
    const untilMs = deadlineOf(target);
    const load = async (): Promise<void> => {
      await pipeline(tally, target, { connections, depth: 400, total: connections * 400, request, untilMs });
      // As many as the gateway takes from one connection.
      await pipeline(tally, target, { connections, depth: 100, total: connections * 800, request, untilMs });
    };
    await Promise.all([load(), tryGenerations(tally, target)]);
    return tally;
  },
};

/** `allow`: the same with requests that name no key. */
export const allowWithoutKey: Attack = {
  name: "allow-without-key",
  title:
    "`allow`: 7 MB of pipelined requests without a key, and one key without credits asks for videos meanwhile",
  durationMs: 12_000,
  config: ALLOW,
  async send(target) {
    const tally = new Tally();
    const request = (): string => get(CREDITS);
    const total = scaled(target, (7 * MB) / request().length);
    const load = pipeline(tally, target, { connections: 50, depth: 2000, total, request });
    await Promise.all([load, tryGenerations(tally, target)]);
    return tally;
  },
};

/** Each pipelined request could become work that is under way. */
export const pipelining: Attack = {
  name: "pipelining",
  title:
    "50 connections pipeline 35 MB of requests without a key, as fast as they are taken, for at most 12 s",
  durationMs: 12_000,
  async send(target) {
    const tally = new Tally();
    const request = (): string => get(CREDITS);
    const total = scaled(target, (35 * MB) / request().length);
    await pipeline(tally, target, { connections: 50, depth: 5000, total, request });
    return tally;
  },
};

/** Answers that nobody takes must stay somewhere. */
export const unreadAnswers: Attack = {
  name: "unread-answers",
  title: "200 connections send 50 requests each, again and again, and never read an answer, for 10 s",
  durationMs: 10_000,
  async send(target) {
    const tally = new Tally();
    const untilMs = deadlineOf(target);
    const depth = 50;
    const wave = get(CREDITS).repeat(depth);
    const connections = await atOnce(scaled(target, 200), async () => {
      const connection = await Connection.open(tally, target.url, { reads: false });
      while (await connection?.send(wave, depth, untilMs)) {
        // The gateway takes what is there before more comes, and ends no connection for too many at once.
        await pause(100);
      }
      return connection;
    });
    await pause(Math.max(0, untilMs - performance.now()));
    for (const connection of connections) connection?.destroy();
    return tally;
  },
};
