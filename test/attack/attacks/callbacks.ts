import { Redis } from "ioredis";
import { createCallbackAddresses } from "../../../src/gateway/callbacks.ts";
import { digestOf, indexName, partitionOf } from "../../../src/records/names.ts";
import { oneNode, partitionsOf } from "../../../src/redis/store-facts.ts";
import { type Attack, MARK, type Target, TEXT_TO_VIDEO } from "../attack.ts";
import { sendPaced, startBareServer } from "../pipelines.ts";
import { atOnce, Connection, deadlineOf, pipeline, scaled, Tally } from "../wire.ts";

const SECRET = "a-secret-of-an-attacked-gateway-for-callbacks";
const PUBLIC_URL = "https://gateway.example";
/** Guesses answered in a second, of a few more that are sent. */
const RATE = 10_000;
const SENT_PER_SECOND = 10_500;
/** On a machine that is slow or busy: of what a bare server of Node's answers there. */
const SHARE_OF_BARE = 0.5;
/** Shares of the attack's time. */
const BARE_SHARE = 0.15;
const GUESSING_SHARE = 0.45;
const ADDRESSES = ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"];
/** Of an address so many are told that there is no such one, and a few more as time goes by. */
const GUESSED_MAX = 130 * ADDRESSES.length;
const HAMMERED = 20_000;
const SLOW_BODIES = 50;
const HUGE_BYTES = 100_000_000;
const BODY = JSON.stringify({ code: 200, msg: "success", data: { task_id: MARK, status: "completed" } });

const callback = (token: string, bytes = BODY.length): string =>
  `POST /callbacks/${token} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: ${bytes}\r\n\r\n`;
const guess = (nth: number): string => `0.req_guessed_${nth}.${String(nth).padStart(32, "A")}`;
/** The gateway slows down an address that pipelines: many guesses a second need connections that send one at a time. */
const GUESSES = {
  connections: 200,
  from: ADDRESSES,
  request: (nth: number): string => callback(guess(nth), 0),
};

/** Anybody may send callbacks: addresses are guessed, and one that is known is called again and again. */
export const callbacks: Attack = {
  name: "callbacks",
  title: `callbacks at guessed addresses over ${GUESSES.connections} connections from ${ADDRESSES.length} addresses ${SENT_PER_SECOND} a second, ${SLOW_BODIES} more of 100 MB and ${SLOW_BODIES} whose bodies drip; then up to ${HAMMERED} callbacks at one address that is known`,
  durationMs: 20_000,
  config: { webhooks: { public_url: PUBLIC_URL, relay: "all" } },
  env: { WEBHOOK_SECRET_KEY: SECRET },
  async send(target) {
    const untilMs = deadlineOf(target);
    const guessing = new Tally();
    const known = new Tally();
    const token = await knownToken(known, target, untilMs);
    const bare = await rateOfBareServer(target);
    const slow = atOnce(2 * SLOW_BODIES, (nth) => sendSlowly(guessing, target, nth, untilMs));
    const seconds = await sendPaced(guessing, {
      ...GUESSES,
      url: target.url,
      perSecond: SENT_PER_SECOND,
      untilMs: after(target, GUESSING_SHARE),
    });
    const early = (await slow).filter(Boolean).length;
    const before = known.count(200);
    await pipeline(known, target, {
      untilMs,
      connections: 20,
      depth: 50,
      total: scaled(target, HAMMERED),
      request: () => callback(token) + BODY,
    });
    const taken = known.count(200) - before;
    judge(guessing, { early, taken, known, seconds, bare });
    for (const [status, count] of Object.entries(known.answers))
      guessing.answers[status] = (guessing.answers[status] ?? 0) + count;
    guessing.requests += known.requests;
    return guessing;
  },
};

const mean = (values: readonly number[]): number =>
  Math.round(values.reduce((sum, value) => sum + value, 0) / values.length);

/** So much of the attack's time from now, as `performance.now()` counts. */
const after = ({ durationMs }: Target, share: number): number => performance.now() + share * durationMs;

/** Answers a second of a bare server once it is compiled, beside the honest traffic and from the same connections. */
async function rateOfBareServer(target: Target): Promise<number> {
  const server = await startBareServer();
  const seconds = await sendPaced(new Tally(), {
    ...GUESSES,
    url: server.url,
    untilMs: after(target, BARE_SHARE),
  });
  await server.stop();
  return seconds.at(-1) ?? 0;
}

interface Seen {
  early: number;
  taken: number;
  known: Tally;
  /** Guesses that were answered in each second. */
  seconds: readonly number[];
  /** Answers a second of a bare server. */
  bare: number;
}

function judge(tally: Tally, { early, taken, known, seconds, bare }: Seen): void {
  const [answered, missing, many] = [tally.count(100, 599), tally.count(404), tally.count(429)];
  tally.check("no guessed address is taken", tally.count(200) === 0, `${tally.count(200)} answered 200`);
  const isBounded = answered > 10 * GUESSED_MAX && missing + many === answered && missing <= GUESSED_MAX;
  tally.check(
    "addresses that guess are refused as too many",
    isBounded,
    `${many} of ${answered} answered 429, ${missing} 404`,
  );
  const rate = mean(seconds);
  tally.check(
    `${RATE.toLocaleString("en-US")} guesses a second are answered, or half of what a bare Node server answers here`,
    rate >= Math.min(RATE, SHARE_OF_BARE * bare),
    `${rate} a second, in the slowest second ${Math.min(...seconds)}; the bare server ${bare}`,
  );
  tally.check(
    "slow and huge bodies are refused before they are read",
    early === 2 * SLOW_BODIES,
    `${early} of ${2 * SLOW_BODIES} answered before their body`,
  );
  const isPaced = taken > 0 && taken <= 20;
  tally.check(
    "one request is asked for rarely, however often it is called back about",
    isPaced,
    `${taken} of ${known.requests} taken`,
  );
}

/** The address of a generation of its own, as its upstream knows it. */
async function knownToken(tally: Tally, target: Target, untilMs: number): Promise<string> {
  const redis = new Redis(target.redisUrl);
  try {
    const [, accountId = ""] = ((await redis.get(indexName(digestOf(target.paidKey)))) ?? "").split(" ");
    const partition = partitionOf(accountId, await partitionsOf(oneNode(redis)));
    const answer = await fetch(target.url + TEXT_TO_VIDEO, {
      method: "POST",
      headers: { authorization: `Bearer ${target.paidKey}`, "content-type": "application/json" },
      body: JSON.stringify({ prompt: MARK }),
    });
    const requestId = answer.headers.get("x-request-id") ?? "";
    await answer.body?.cancel();
    const token = createCallbackAddresses([SECRET]).tokenOf({ partition, requestId });
    const connection = await Connection.open(tally, target.url);
    const status = await connection?.ask(callback(token) + BODY, untilMs);
    connection?.destroy();
    tally.check("a true address is taken", status === 200, `answered ${status}`);
    return token;
  } finally {
    redis.disconnect();
  }
}

/** @returns whether an answer came while the body was still to be sent */
async function sendSlowly(tally: Tally, { url }: Target, nth: number, untilMs: number): Promise<boolean> {
  const connection = await Connection.open(tally, url);
  const bytes = nth % 2 === 0 ? HUGE_BYTES : BODY.length;
  const status = await connection?.ask(
    `${callback(guess(nth), bytes)}{`,
    Math.min(untilMs, performance.now() + 5000),
  );
  connection?.destroy();
  return status === 404 || status === 429;
}
