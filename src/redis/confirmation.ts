import { randomUUID } from "node:crypto";
import type { Redis } from "ioredis";
import { markName } from "../records/names.ts";
import { clientOf, connectTimeoutMs, limitHandshakes, type RedisEndpoint } from "./client.ts";
import { Deadlines } from "./deadlines.ts";
import { primaryRunOf } from "./server-info.ts";

type Confirmed = "replicas" | "none";

export interface ConfirmationRule {
  replicas: number;
  timeoutMs: number;
}

interface ConfirmationOptions extends ConfirmationRule, RedisEndpoint {
  commandTimeoutMs: number;
  partition(): number;
}

/** How long the mark of a gateway that has ended stays in the store. */
const MARK_MS = 60_000;
/** For the way to Redis and back, in the time limit of a round. */
const ROUND_MARGIN_MS = 50;

export type Confirmation = ReturnType<typeof createConfirmation>;

/**
 * Finds out whether replicas have what Redis answered on `requests`. One round serves all callers: a mark on a connection of its own, and a WAIT
 * for it. Nothing is sent while nobody waits. Decision 0043.
 */
export function createConfirmation(requests: Redis, options: ConfirmationOptions) {
  const { replicas, timeoutMs } = options;
  const own = createOwnConnection(options);
  const gateway = randomUUID();
  const rounds = createRounds(() => own.within(send()));
  /** The run of the primary that `requests` leads to; undefined while that is not known. */
  let runId: string | undefined;
  let isClosed = false;

  /** A write of the lost connection must not be confirmed by a round on the next server. */
  function onRequestsClosed(): void {
    runId = undefined;
    rounds.abandon();
  }
  requests.on("close", onRequestsClosed);

  async function identify(): Promise<string | undefined> {
    runId = await runIdOf(requests);
    return runId;
  }

  /** True if both connections lead to the run of the primary that has answered the callers. */
  async function isSameServer(): Promise<boolean> {
    if (own.runId !== undefined && own.runId === runId) return true;
    if (own.redis.status !== "ready") return false;
    const answered = runId;
    const [theirs, ours] = await Promise.all([identify(), runIdOf(own.redis)]);
    own.runId = ours;
    if (theirs !== undefined && ours !== theirs) own.reconnect();
    return ours !== undefined && ours === theirs && ours === answered;
  }

  async function send(): Promise<Confirmed> {
    if (!(await isSameServer())) return "none";
    const mark = markName(options.partition(), gateway);
    return (await markAndWait(own.redis, { mark, replicas, timeoutMs })) ? "replicas" : "none";
  }

  return {
    start: own.connect,
    runId: () => runId,
    identify,
    /** True once replicas have all that was answered before this call. Takes a round, and the rest of the one under way. */
    confirmed: (): Promise<Confirmed> =>
      runId === undefined || isClosed ? Promise.resolve("none") : rounds.join(),
    close(): void {
      isClosed = true;
      requests.off("close", onRequestsClosed);
      rounds.abandon();
      own.close();
    },
  };
}

/** Also while Redis is out of memory: charges are still settled, and nothing leaves Redis that replicas do not have. */
const MARK = '#!lua flags=allow-oom\nreturn redis.call("SET", KEYS[1], "", "PX", ARGV[1])';

/** True once replicas have all that the server has answered before, to any connection. @throws when Redis does not answer */
export async function markAndWait(
  redis: Redis,
  { mark, replicas, timeoutMs }: ConfirmationRule & { mark: string },
): Promise<boolean> {
  // WAIT counts up to its connection's own last write (from Redis 7.2 on; its last command before): that is the mark.
  const replies = await redis.pipeline().eval(MARK, 1, mark, MARK_MS).wait(replicas, timeoutMs).exec();
  const [marked, waited] = replies ?? [];
  const failure = marked?.[0] ?? waited?.[0];
  if (failure) throw failure;
  return Number(waited?.[1]) >= replicas;
}

/** One at a time, for all that wait. @param send makes one; a failure counts as `none` */
export function createRounds(send: () => Promise<Confirmed>) {
  let waiting: ((confirmed: Confirmed) => void)[] = [];
  let isUnderWay = false;

  function takeWaiting(): (confirmed: Confirmed) => void {
    const callers = waiting;
    waiting = [];
    return (confirmed) => {
      for (const resolve of callers) resolve(confirmed);
    };
  }

  async function round(): Promise<void> {
    const answer = takeWaiting();
    const confirmed = await send().catch((): Confirmed => "none");
    answer(confirmed);
    // Calls that came during a round without replicas are answered with it: the next round would most likely fail, too.
    if (confirmed === "none") takeWaiting()("none");
    isUnderWay = false;
    begin();
  }

  function begin(): void {
    if (isUnderWay || waiting.length === 0) return;
    isUnderWay = true;
    // After what has arrived is read: all answers of one tick share a round.
    setImmediate(() => void round());
  }

  return {
    join: (): Promise<Confirmed> =>
      new Promise((resolve) => {
        waiting.push(resolve);
        begin();
      }),
    abandon: (): void => takeWaiting()("none"),
  };
}

/** WAIT holds up everything behind it. Reconnects by itself; a server that does not answer is left after a time limit. */
function createOwnConnection(options: ConfirmationOptions) {
  const connectTimeout = connectTimeoutMs(options.commandTimeoutMs);
  const redis = clientOf(options, { connectTimeout });
  /** Longer than WAIT's own time, which Redis begins to count when it reads the command. */
  const rounds = new Deadlines(2 * options.timeoutMs + ROUND_MARGIN_MS);
  const reconnect = (): void => redis.disconnect(true);
  const own = {
    redis,
    /** The run of the primary that it leads to; undefined until that is read. */
    runId: undefined as string | undefined,
    reconnect,
    connect: (): void => void redis.connect().catch(() => undefined),
    /** A round's result. What has no answer in time is hung, and gets a new connection. */
    within: <T>(round: Promise<T>): Promise<T> =>
      rounds.within(round).catch((error: unknown) => {
        own.runId = undefined;
        if (redis.status === "ready") reconnect();
        throw error;
      }),
    close: (): void => redis.disconnect(),
  };
  redis.on("error", () => undefined);
  limitHandshakes(redis, new Deadlines(connectTimeout));
  redis.on("close", () => {
    own.runId = undefined;
  });
  return own;
}

/** Names the run of a primary: a restart, a promotion and a demotion change it. */
async function runIdOf(redis: Redis): Promise<string | undefined> {
  const found = await primaryRunOf(redis);
  return found && `${found.run}:${found.replid}`;
}
