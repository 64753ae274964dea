import { hostText, type RedisAddress, type RedisHost } from "../domain/redis-address.ts";
import { readSentinel, type SentinelAnswer, sentinelReason } from "../redis/topology/sentinels.ts";
import { createServerPolls } from "../redis/topology/server-polls.ts";
import { type Check, checksOf } from "./check.ts";

const { good, warning, failed } = checksOf("sentinels");

/** With fewer, the loss of one leaves no majority. */
const SENTINELS_MIN = 3;
/** That are polled: those of the address, and others that they name. */
const POLLED_MAX = 32;

export interface PolledSentinel {
  /** `host:port`. */
  server: string;
  answer: SentinelAnswer | { why: string };
}

/** Nothing for addresses without Sentinels. @param replicas connected to the primary; undefined if it does not answer */
export async function sentinelsChecks(
  address: RedisAddress,
  tlsCa: string | undefined,
  replicas?: number,
): Promise<Check[]> {
  if (address.kind !== "sentinel") return [];
  const polled = new Map<string, PolledSentinel>();
  const pollNew = async (hosts: readonly RedisHost[]): Promise<void> => {
    const unpolled = new Map(hosts.map((host) => [hostText(host), host]));
    const next = [...unpolled].filter(([server]) => !polled.has(server)).slice(0, POLLED_MAX - polled.size);
    const answers = await Promise.all(next.map(([, host]) => pollOne(host, address, tlsCa)));
    for (const answer of answers) polled.set(answer.server, answer);
  };
  await pollNew(address.hosts);
  await pollNew(othersOf([...polled.values()]));
  return judgeSentinels(address.name ?? "", [...polled.values()], replicas);
}

async function pollOne(
  at: RedisHost,
  address: RedisAddress,
  tlsCa: string | undefined,
): Promise<PolledSentinel> {
  const { name = "", tls, family, sentinelUsername: username, sentinelPassword: password } = address;
  const sentinel = createServerPolls([at], { tls, username, password, db: 0, family, tlsCa });
  try {
    const { answers, failures } = await sentinel.poll((redis) => readSentinel(name, redis));
    return { server: hostText(at), answer: answers[0] ?? { why: sentinelReason(failures[0]?.error) } };
  } finally {
    sentinel.close();
  }
}

const hasAnswered = (one: PolledSentinel): one is { server: string; answer: SentinelAnswer } =>
  "primary" in one.answer;

const othersOf = (polled: readonly PolledSentinel[]): RedisHost[] =>
  polled.filter(hasAnswered).flatMap(({ answer }) => answer.others);

/** @param name what the Sentinels call the primary @param replicas that are connected to it; undefined if that is not known */
export function judgeSentinels(
  name: string,
  polled: readonly PolledSentinel[],
  replicas = Number.POSITIVE_INFINITY,
): Check[] {
  const answers = polled.filter(hasAnswered);
  // Then REDIS_URL is wrong, or all are away: the check of Redis itself says so for each.
  if (answers.length === 0) return [];
  const announced = new Set(othersOf(polled).map(hostText));
  const silent = polled.flatMap(({ server, answer }) =>
    "why" in answer ? [{ server, why: answer.why }] : [],
  );
  const known = Math.max(...answers.map(({ answer }) => answer.others.length + 1));
  const answering = known - silent.filter(({ server }) => announced.has(server)).length;
  const quorum = Math.max(...answers.map(({ answer }) => answer.quorum));
  const bad = [
    ...silent.map(({ server, why }) => silentCheck(server, why, announced.has(server))),
    ...samePrimary(answers),
    ...enough({ known, answering, quorum, name }),
    ...lostReplicas(Math.max(...answers.map(({ answer }) => answer.replicas)), replicas),
  ];
  if (bad.length > 0) return bad;
  const found = `${answering} of ${known} answer and name ${answers[0]!.answer.primary.name}; the quorum is ${quorum}`;
  return [good(found)];
}

function silentCheck(server: string, why: string, isAnnounced: boolean): Check {
  const found = `${server} does not say where the primary is: ${why}`;
  return isAnnounced
    ? warning(
        `${found} (the other Sentinels name it so)`,
        "start it; if it runs, let it announce an address that is reached from here (`sentinel announce-ip`); " +
          "if it is gone for good, run `SENTINEL RESET` at the others",
      )
    : warning(found, "start it, or take it out of REDIS_URL");
}

function samePrimary(answers: readonly { server: string; answer: SentinelAnswer }[]): Check[] {
  const named = Map.groupBy(answers, ({ answer }) => answer.primary.name);
  if (named.size === 1) return [];
  const list = [...named].map(([primary, by]) => `${primary} (${by.map(({ server }) => server).join(", ")})`);
  const advice =
    "wait for a failover to end; if this stays, run `SENTINEL RESET` at the Sentinel with the smaller config-epoch";
  return [failed(`they name different primaries: ${list.join(", ")}`, advice)];
}

/** @param known by the Sentinels @param connected to the primary */
function lostReplicas(known: number, connected: number): Check[] {
  if (known <= connected) return [];
  const advice =
    "start the others, and see their logs; if one is gone for good, run `SENTINEL RESET` at each Sentinel";
  return [warning(`they know ${known} replicas, and ${connected} are connected to the primary`, advice)];
}

interface Count {
  /** Sentinels that know of each other. */
  known: number;
  answering: number;
  quorum: number;
  name: string;
}

function enough({ known, answering, quorum, name }: Count): Check[] {
  const majority = Math.floor(known / 2) + 1;
  if (quorum > known) {
    const found = `the quorum is ${quorum}, of ${known} Sentinels: nobody replaces a primary that fails`;
    return [failed(found, `run \`SENTINEL SET ${name} quorum ${majority}\` at each`)];
  }
  const needed = Math.max(quorum, majority);
  if (answering < needed) {
    const found = `${answering} of ${known} answer, and a failover needs ${needed}: nobody replaces a primary that fails`;
    return [failed(found, "bring Sentinels back")];
  }
  if (known < SENTINELS_MIN) {
    const found = `there ${known === 1 ? "is 1" : `are ${known}`}: if one is lost, nobody replaces a primary that fails`;
    return [warning(found, `let ${SENTINELS_MIN} on different machines watch ${name}`)];
  }
  return [];
}
