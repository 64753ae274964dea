import type { Redis } from "ioredis";
import { hostText, type RedisAddress, type RedisHost } from "../domain/redis-address.ts";
import { clientAt } from "./client.ts";
import { createDeadlines, type Deadlines, TIMED_OUT } from "./deadlines.ts";
import type { PlacedPrimary, PlacementOptions } from "./placement.ts";
import { StoreError, storeReason } from "./reasons.ts";

/** How long one Sentinel may take to connect and answer. */
const ANSWER_MS = 1000;
/** How long the others are waited for after the first answer; a hung Sentinel must not delay what the others know. */
const OTHERS_MS = 200;
/** Sentinels that are asked at most: those of the address, and others that they name. */
const SENTINELS_MAX = 16;

/** What one Sentinel answers. */
interface Answer {
  primary: PlacedPrimary;
  /** The other Sentinels of this primary that it knows. */
  others: RedisHost[];
}

/** Asks Sentinels where their primary is. Connections are kept between questions. */
export interface Sentinels {
  /** The primary that the answer of the highest epoch names. @throws StoreError if none of them names one */
  find(): Promise<PlacedPrimary>;
  close(): void;
}

/** @param address names the Sentinels, and what they call the primary */
export function createSentinels(address: RedisAddress, { tlsCa }: PlacementOptions): Sentinels {
  const name = address.name ?? "";
  const given = address.hosts.map(hostText);
  const deadlines = createDeadlines(ANSWER_MS);
  const known = new Map<string, Sentinel>();
  const add = (at: RedisHost): void => {
    if (known.size >= SENTINELS_MAX || known.has(hostText(at))) return;
    known.set(hostText(at), createSentinel(at, { address, tlsCa, deadlines }));
  };
  for (const host of address.hosts) add(host);

  /** Those of the address stay known; of the others, those that the Sentinels name now. */
  function learn(answers: readonly Answer[]): void {
    const named = answers.flatMap(({ others }) => others);
    const kept = new Set([...given, ...named.map(hostText)]);
    for (const [text, sentinel] of known) {
      if (kept.has(text)) continue;
      sentinel.close();
      known.delete(text);
    }
    for (const host of named) add(host);
  }

  return {
    async find() {
      const { answers, failures } = await askAll([...known], name);
      const [best] = answers.map(({ primary }) => primary).sort((a, b) => b.epoch - a.epoch);
      if (best === undefined) throw nobodyKnows(name, failures);
      learn(answers);
      return best;
    },
    close(): void {
      for (const sentinel of known.values()) sentinel.close();
      known.clear();
    },
  };
}

type Sentinel = ReturnType<typeof createSentinel>;

function createSentinel(
  at: RedisHost,
  options: { address: RedisAddress; tlsCa: string | undefined; deadlines: Deadlines },
) {
  const { address, tlsCa, deadlines } = options;
  const { sentinelUsername: username, sentinelPassword: password, tls, family } = address;
  const redis = clientAt(
    at,
    { tls, username, password, db: 0, family, tlsCa },
    { connectTimeout: 0, retryStrategy: () => null, enableReadyCheck: false },
  );
  let failure: Error | undefined;
  redis.on("error", (error: Error) => {
    failure = error;
  });

  async function connected(): Promise<void> {
    if (redis.status === "ready") return;
    if (redis.status !== "wait" && redis.status !== "end") disconnect();
    failure = undefined;
    await redis.connect();
  }
  function disconnect(): void {
    redis.disconnect();
    redis.stream?.destroy();
  }

  return {
    /** @throws Error in Redis's, the system's or our own words */
    async ask(name: string): Promise<Answer> {
      try {
        return await deadlines.within(connected().then(() => askFor(name, redis)));
      } catch (error) {
        if (!(error instanceof StoreError)) disconnect();
        throw error instanceof StoreError ? error : (failure ?? error);
      }
    },
    close: disconnect,
  };
}

/** @throws StoreError for a name that this Sentinel does not know */
async function askFor(name: string, redis: Redis): Promise<Answer> {
  const replies = await redis
    .pipeline()
    .call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)
    .call("SENTINEL", "MASTER", name)
    .call("SENTINEL", "SENTINELS", name)
    .exec();
  const [[addressError, at], [masterError, master], [, sentinels]] = replies as [Reply, Reply, Reply];
  if (addressError) throw addressError;
  if (!Array.isArray(at)) throw unknownName(await namesKnownTo(redis));
  if (masterError) throw masterError;
  const primary = { host: String(at[0]), port: Number(at[1]) };
  const others = Array.isArray(sentinels) ? sentinels.map(fieldsOf) : [];
  return {
    primary: { ...primary, name: hostText(primary), epoch: Number(fieldsOf(master)["config-epoch"] ?? 0) },
    others: others.flatMap(({ ip = "", port }) => (ip === "" ? [] : [{ host: ip, port: Number(port) }])),
  };
}

type Reply = [error: Error | null, reply: unknown];

async function namesKnownTo(redis: Redis): Promise<string[]> {
  const masters = await redis.call("SENTINEL", "MASTERS");
  return Array.isArray(masters) ? masters.map((master) => fieldsOf(master).name ?? "") : [];
}

/** A flat list of names and values, as Sentinel writes it. */
function fieldsOf(flat: unknown): Record<string, string> {
  const list = Array.isArray(flat) ? flat.map(String) : [];
  return Object.fromEntries(list.flatMap((name, at) => (at % 2 === 0 ? [[name, list[at + 1] ?? ""]] : [])));
}

class UnknownNameError extends StoreError {}

const unknownName = (known: readonly string[]): UnknownNameError =>
  new UnknownNameError(
    known.length === 0
      ? "it does not know this name, and watches no primary"
      : `it does not know this name, and watches ${known.join(", ")}`,
  );

interface Failure {
  sentinel: string;
  error: unknown;
}

/** The answers of those that answer in time, and why the others do not. */
async function askAll(
  sentinels: readonly (readonly [string, Sentinel])[],
  name: string,
): Promise<{ answers: Answer[]; failures: Failure[] }> {
  const answers: Answer[] = [];
  const failures: Failure[] = [];
  const { promise: othersLate, resolve } = Promise.withResolvers<void>();
  let waiting: NodeJS.Timeout | undefined;
  const questions = sentinels.map(async ([sentinel, { ask }]) => {
    try {
      answers.push(await ask(name));
      waiting ??= setTimeout(resolve, OTHERS_MS).unref();
    } catch (error) {
      failures.push({ sentinel, error });
    }
  });
  await Promise.race([Promise.all(questions), othersLate]);
  clearTimeout(waiting);
  return { answers: [...answers], failures };
}

/** Says which Sentinels were asked, what each said, and what to do about it. */
function nobodyKnows(name: string, failures: readonly Failure[]): StoreError {
  const list = failures.map(({ sentinel, error }) => `${sentinel}: ${reasonOf(error)}`).join("; ");
  const wasAsked = `no Sentinel says where the primary ${name} is: ${list}`;
  if (failures.some(({ error }) => error instanceof UnknownNameError))
    return new StoreError(
      wasAsked,
      "end REDIS_URL with a name that they watch, or let them watch this one with `sentinel monitor`",
    );
  if (failures.some(({ error }) => /^(NOAUTH|WRONGPASS|NOPERM)|password/i.test(messageOf(error))))
    return new StoreError(
      wasAsked,
      "give the user and the password of the Sentinels in REDIS_URL, as in /NAME?sentinel_user=U&sentinel_password=P; " +
        "user and password before the hosts are for Redis",
    );
  return new StoreError(
    wasAsked,
    "see that the hosts and ports in REDIS_URL are those of Sentinels (26379 by default), that they run, that no firewall is " +
      "between, and that rediss+sentinel:// is used only where they speak TLS",
  );
}

function reasonOf(error: unknown): string {
  const { why } = storeReason(error);
  if (error instanceof UnknownNameError) return why;
  if (/^NOAUTH/.test(messageOf(error))) return "it wants a password (NOAUTH)";
  if (/^WRONGPASS/.test(messageOf(error))) return "it refuses the user or the password (WRONGPASS)";
  if (/unknown command.*sentinel/i.test(messageOf(error))) return "it is no Sentinel, but a Redis server";
  if (error instanceof Error && error.message === TIMED_OUT) return `no answer within ${ANSWER_MS} ms`;
  return why;
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
