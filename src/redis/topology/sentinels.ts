import type { Redis } from "ioredis";
import { hostText, type RedisAddress, type RedisHost } from "../../domain/redis-address.ts";
import { TIMED_OUT } from "../deadlines.ts";
import { StoreError, storeReason } from "../reasons.ts";
import type { PlacedPrimary, PlacementOptions } from "./placement.ts";
import { ANSWER_MS, createServerPolls, type Failure } from "./server-polls.ts";

/** Sentinels that are polled at most: those of the address, and others that they name. */
const SENTINELS_MAX = 16;

export interface SentinelAnswer {
  primary: PlacedPrimary;
  /** The other Sentinels of this primary that it knows. */
  others: RedisHost[];
  /** How many Sentinels must find the primary away before a failover. */
  quorum: number;
  /** How many replicas it knows, also those that are away or must not be promoted. */
  replicas: number;
}

/** Polls Sentinels for their primary. Connections are kept between polls. @param address names the Sentinels and the primary */
export function createSentinels(address: RedisAddress, { tlsCa }: PlacementOptions) {
  const { name = "", hosts, tls, family, sentinelUsername: username, sentinelPassword: password } = address;
  const sentinels = createServerPolls(hosts, { tls, username, password, db: 0, family, tlsCa });
  let last: string | undefined;

  return {
    /** The primary that the answer of the highest epoch names. @throws StoreError if none of them names one */
    async find(): Promise<PlacedPrimary> {
      const { answers, failures } = await sentinels.poll((redis) => readSentinel(name, redis));
      const best = newest(answers, last);
      if (best === undefined) throw nobodyKnows(name, failures);
      last = best.name;
      sentinels.replace(nextPolled(hosts, answers));
      return best;
    },
    silent: sentinels.silent,
    close: sentinels.close,
  };
}

/** The primary of the highest epoch; another name alone changes nothing. A replica that any of them may promote counts. */
export function newest(
  answers: readonly Pick<SentinelAnswer, "primary">[],
  last: string | undefined,
): PlacedPrimary | undefined {
  const epoch = Math.max(...answers.map(({ primary }) => primary.epoch));
  const named = answers.map(({ primary }) => primary).filter((primary) => primary.epoch === epoch);
  const best = named.find(({ name }) => name === last) ?? named.sort((a, b) => (a.name < b.name ? -1 : 1))[0];
  return best && { ...best, replicas: Math.max(...named.map(({ replicas }) => replicas)) };
}

function nextPolled(given: readonly RedisHost[], answers: readonly SentinelAnswer[]): RedisHost[] {
  const hosts = [...given, ...answers.flatMap(({ others }) => others)];
  return [...new Map(hosts.map((host) => [hostText(host), host])).values()].slice(0, SENTINELS_MAX);
}

/** @throws StoreError for a name that this Sentinel does not know */
export async function readSentinel(name: string, redis: Redis): Promise<SentinelAnswer> {
  const replies = await redis
    .pipeline()
    .call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)
    .call("SENTINEL", "MASTER", name)
    .call("SENTINEL", "SENTINELS", name)
    .call("SENTINEL", "REPLICAS", name)
    .exec();
  const [[addressError, at], [masterError, master], [, sentinels], [, listed]] = replies as FourReplies;
  if (addressError) throw addressError;
  if (!Array.isArray(at)) throw unknownName(await namesKnownTo(redis));
  if (masterError) throw masterError;
  const primary = { host: String(at[0]), port: Number(at[1]) };
  const others = Array.isArray(sentinels) ? sentinels.map(fieldsOf) : [];
  const { "config-epoch": epoch = 0, "num-slaves": known = 0, quorum = 0 } = fieldsOf(master);
  // An ACL may keep the list from us: then each of them may be promoted.
  const replicas = Array.isArray(listed) ? listed.map(fieldsOf).filter(mayBePromoted).length : Number(known);
  return {
    primary: { ...primary, name: hostText(primary), epoch: Number(epoch), replicas },
    quorum: Number(quorum),
    replicas: Number(known),
    others: others.flatMap(({ ip = "", port }) => (ip === "" ? [] : [{ host: ip, port: Number(port) }])),
  };
}

type Reply = [error: Error | null, reply: unknown];
type FourReplies = [address: Reply, master: Reply, sentinels: Reply, replicas: Reply];

/** https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/#replica-selection-and-priority */
const mayBePromoted = ({ flags = "", "slave-priority": priority }: Record<string, string>): boolean =>
  priority !== "0" && !flags.split(",").some((flag) => AWAY.has(flag));

const AWAY = new Set(["s_down", "o_down", "disconnected"]);

async function namesKnownTo(redis: Redis): Promise<string[]> {
  const masters = await redis.call("SENTINEL", "MASTERS");
  return Array.isArray(masters) ? masters.map((master) => fieldsOf(master).name ?? "") : [];
}

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

function nobodyKnows(name: string, failures: readonly Failure[]): StoreError {
  const list = failures.map(({ server, error }) => `${server}: ${sentinelReason(error)}`).join("; ");
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

export function sentinelReason(error: unknown): string {
  const { why } = storeReason(error);
  if (error instanceof UnknownNameError) return why;
  if (/^NOAUTH/.test(messageOf(error))) return "it wants a password (NOAUTH)";
  if (/^WRONGPASS/.test(messageOf(error))) return "it refuses the user or the password (WRONGPASS)";
  if (/unknown command.*sentinel/i.test(messageOf(error))) return "it is no Sentinel, but a Redis server";
  if (error instanceof Error && error.message === TIMED_OUT) return `no answer within ${ANSWER_MS} ms`;
  return why;
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
