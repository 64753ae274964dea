import { Redis } from "ioredis";
import { createCallbackAddresses } from "../../../src/gateway/callbacks.ts";
import { digestOf, indexName, partitionOf } from "../../../src/records/names.ts";
import { oneNode } from "../../../src/redis/nodes.ts";
import { partitionsOf } from "../../../src/redis/store-facts.ts";
import { type Attack, MARK, type Target, TEXT_TO_VIDEO } from "../attack.ts";
import { atOnce, Connection, deadlineOf, pipeline, scaled, Tally } from "../wire.ts";

const SECRET = "a-secret-of-an-attacked-gateway-for-callbacks";
const PUBLIC_URL = "https://gateway.example";
const GUESSES = 120_000;
/** The gateway slows down an address that pipelines: many guesses a second need connections that send one at a time. */
const GUESSING = { addresses: ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"], connections: 400 };
/** Of an address so many are told that there is no such one, and a few more as time goes by. */
const GUESSED_MAX = 130 * GUESSING.addresses.length;
const HAMMERED = 20_000;
const SLOW_BODIES = 50;
const HUGE_BYTES = 100_000_000;
const BODY = JSON.stringify({ code: 200, msg: "success", data: { task_id: MARK, status: "completed" } });

const callback = (token: string, bytes = BODY.length): string =>
  `POST /callbacks/${token} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: ${bytes}\r\n\r\n`;
const guess = (nth: number): string => `0.req_guessed_${nth}.${String(nth).padStart(32, "A")}`;

/** Anybody may send callbacks: addresses are guessed, and one that is known is called again and again. */
export const callbacks: Attack = {
  name: "callbacks",
  title: `callbacks at guessed addresses over ${GUESSING.connections} connections from ${GUESSING.addresses.length} addresses as fast as they are answered, up to ${GUESSES}, ${SLOW_BODIES} more of 100 MB and ${SLOW_BODIES} whose bodies drip; then up to ${HAMMERED} callbacks at one address that is known`,
  durationMs: 15_000,
  config: { webhooks: { public_url: PUBLIC_URL, relay: "all" } },
  env: { WEBHOOK_SECRET_KEY: SECRET },
  async send(target) {
    const untilMs = deadlineOf(target);
    const guessing = new Tally();
    const known = new Tally();
    const token = await knownToken(known, target, untilMs);
    const total = scaled(target, GUESSES);
    const half = { ...target, durationMs: target.durationMs / 2 };
    const slow = atOnce(2 * SLOW_BODIES, (nth) => sendSlowly(guessing, target, nth, untilMs));
    const fromMs = performance.now();
    await pipeline(guessing, half, {
      connections: GUESSING.connections,
      from: GUESSING.addresses,
      depth: 1,
      total,
      request: (nth) => callback(guess(nth), 0),
    });
    const perSecond = Math.round((1000 * guessing.count(100, 599)) / (performance.now() - fromMs));
    const early = (await slow).filter(Boolean).length;
    const before = known.count(200);
    await pipeline(known, half, {
      connections: 20,
      depth: 50,
      total: scaled(target, HAMMERED),
      request: () => callback(token) + BODY,
    });
    const taken = known.count(200) - before;
    judge(guessing, { early, taken, known, perSecond });
    for (const [status, count] of Object.entries(known.answers))
      guessing.answers[status] = (guessing.answers[status] ?? 0) + count;
    guessing.requests += known.requests;
    return guessing;
  },
};

interface Seen {
  early: number;
  taken: number;
  known: Tally;
  /** Guesses that were answered. */
  perSecond: number;
}

function judge(tally: Tally, { early, taken, known, perSecond }: Seen): void {
  const [answered, missing, many] = [tally.count(100, 599), tally.count(404), tally.count(429)];
  tally.check("no guessed address is taken", tally.count(200) === 0, `${tally.count(200)} answered 200`);
  const isBounded = answered > 10 * GUESSED_MAX && missing + many === answered && missing <= GUESSED_MAX;
  tally.check(
    "addresses that guess are refused as too many",
    isBounded,
    `${many} of ${answered} answered 429, ${missing} 404; ${perSecond} answered a second`,
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
