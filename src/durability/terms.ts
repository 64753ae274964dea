import type { Redis } from "ioredis";
import { dropOldest } from "../domain/bounded.ts";
import { hostText, parseRedisAddress, type RedisHost } from "../domain/redis-address.ts";
import { META, termName } from "../records/names.ts";
import { onOwnConnection, type RedisEndpoint } from "../redis/client.ts";
import type { Connection } from "../redis/connection.ts";
import { Deadlines } from "../redis/deadlines.ts";
import type { Primary } from "../redis/primary.ts";
import { StoreError } from "../redis/reasons.ts";
import { isRefusedByStore } from "../redis/script-errors.ts";
import { type PrimaryRun, primaryRunOf } from "../redis/server-info.ts";
import type { Logger } from "../telemetry/log.ts";

const DIAL_LIMIT = new Deadlines(1000);
const LOOK_EVERY_MS = 15_000;

export interface Term {
  term: number;
  /** `master_replid` of the server. */
  replid: string;
  at: RedisHost;
}

interface TermFile {
  term(storeId: string, name: string): Term | undefined;
  keepTerm(storeId: string, name: string, term: Term): void;
}

type Checked = Pick<Primary, "redis" | "within" | "endpoint" | "name">;

/**
 * Of two servers that both take writes, only one is used: the first gateway that meets a new replication id raises the primary's term and
 * tells the former one; gateways that read that stop using it. Decision 0042. @param options.lookEveryMs for tests
 */
export function createTerms(
  connection: Pick<Connection, "known" | "partitionOn" | "metrics" | "primaries">,
  options: { file: TermFile; log: Logger; lookEveryMs?: number },
) {
  const { file, log, lookEveryMs = LOOK_EVERY_MS } = options;
  const { nextTerm, leadsElsewhere, repeatHandovers } = createSuccession(file, log);
  const lookedMs = new WeakMap<Checked, number>();
  const ids = createShownIds(connection);
  const nameFor = (primary: Primary): string => termName(connection.partitionOn(primary));

  return {
    /** Part of each probe. @throws StoreError if this primary must not be used */
    async requireLatest(primary: Primary): Promise<void> {
      const { id, cluster } = connection.known.facts ?? {};
      const server = await primary.within(primaryRunOf(primary.redis));
      if (server === undefined) return;
      ids.learn(primary, server.replid);
      if (id === undefined || cluster) return;
      const name = nameFor(primary);
      const { term, replid, left } = await primary.within(recordIn(primary.redis, name));
      if (left !== null) throw replaced(left);
      if (replid !== server.replid) return nextTerm(primary, id, name, server.replid, term);
      const known = file.term(id, name);
      if (known && known.term > term && known.replid !== replid) throw smallerTerm(known, term);
      file.keepTerm(id, name, { term, replid, at: hostOf(primary) });
    },
    /** Once a second: another gateway may have left the primary, or connections may lead to another one. @returns why it must not be used */
    async leaveReason(primary: Primary): Promise<string | undefined> {
      ids.show(primary);
      const { id, cluster } = connection.known.facts ?? {};
      if (id === undefined) return undefined;
      const name = nameFor(primary);
      const left = cluster ? null : await primary.within(primary.redis.hget(name, "left"));
      if (left !== null) return replaced(left).message;
      const nowMs = performance.now();
      if (!lookedMs.has(primary)) lookedMs.set(primary, nowMs);
      if (nowMs - lookedMs.get(primary)! < lookEveryMs) return undefined;
      lookedMs.set(primary, nowMs);
      repeatHandovers(name);
      // It also changes when the first replica connects.
      const server = await primary.within(primaryRunOf(primary.redis));
      if (server === undefined) return undefined;
      ids.learn(primary, server.replid);
      if (cluster || primary.endpoint.at !== undefined) return undefined;
      if (!(await leadsElsewhere(primary, server, id, name))) return undefined;
      primary.redis.disconnect(true);
      return "new connections lead to another primary";
    },
    unused: ids.hide,
  };
}

export type Terms = ReturnType<typeof createTerms>;

function createSuccession(file: TermFile, log: Logger) {
  const handovers = createHandovers(log);

  /** @throws StoreError if another primary has a later term and still answers */
  async function nextTerm(
    primary: Checked,
    storeId: string,
    name: string,
    replid: string,
    storedTerm: number,
  ) {
    const known = file.term(storeId, name);
    const isOther = known !== undefined && known.replid !== replid;
    if (isOther && known.term > storedTerm && (await isStillPrimary(primary.endpoint, known)))
      throw smallerTerm(known, storedTerm);
    const next: Term = { term: Math.max(storedTerm, known?.term ?? 0) + 1, replid, at: hostOf(primary) };
    await primary
      .within(primary.redis.hset(name, "term", next.term, "replid", replid))
      .catch((error: unknown) => {
        // Settlements and polls still work without memory.
        if (!isRefusedByStore(error)) throw error;
      });
    file.keepTerm(storeId, name, next);
    if (isOther) handovers.begin({ name, endpoint: primary.endpoint, former: known, latest: next });
  }

  async function leadsElsewhere(
    primary: Checked,
    mine: PrimaryRun,
    storeId: string,
    name: string,
  ): Promise<boolean> {
    const other = await dial(primary.endpoint, hostOf(primary), async (redis) => {
      const server = await primaryRunOf(redis);
      const isSameStore = (await redis.hget(META, "id")) === storeId;
      return isSameStore && (await redis.hget(name, "left")) === null ? server : undefined;
    }).catch(() => undefined);
    if (other === undefined || mine.run === other.run) return false;
    const known = file.term(storeId, name);
    const now: Term = { term: (known?.term ?? 0) + 1, replid: other.replid, at: hostOf(primary) };
    await primary.within(primary.redis.hset(name, "left", leftText(now)));
    log.error(
      "the connection leads to a primary that new connections do not lead to; it is left: stop that server",
    );
    return true;
  }

  return { nextTerm, leadsElsewhere, repeatHandovers: handovers.repeat };
}

interface Handover {
  /** Of the record. */
  name: string;
  endpoint: RedisEndpoint;
  former: Term;
  latest: Term;
}

/** Former primaries that have not answered are few, and the oldest of more gives way. */
const PENDING_MAX = 16;

function createHandovers(log: Logger) {
  /** By the replication id of the former primary, which may be slow, or come back. */
  const pending = new Map<string, Handover>();

  async function signFormer({ name, endpoint, former, latest }: Handover): Promise<void> {
    const isSigned = await dial(endpoint, former.at, async (redis) => {
      if ((await primaryRunOf(redis))?.replid !== former.replid) return false;
      await redis.hset(name, "left", leftText(latest));
      return true;
    });
    if (isSigned)
      log.error(
        { former: hostText(former.at), primary: hostText(latest.at) },
        "the primary before still takes writes; it was told that gateways use another; stop it",
      );
  }

  function attempt(handover: Handover): void {
    const { replid } = handover.former;
    pending.set(replid, handover);
    signFormer(handover)
      .then(() => pending.get(replid) === handover && pending.delete(replid))
      .catch(() => undefined);
  }

  return {
    begin(handover: Handover): void {
      dropOldest(pending, PENDING_MAX);
      attempt(handover);
    },
    repeat(name: string): void {
      for (const handover of [...pending.values()]) if (handover.name === name) attempt(handover);
    },
  };
}

function createShownIds({ metrics, primaries }: Pick<Connection, "metrics" | "primaries">) {
  const known = new WeakMap<Checked, string>();
  const shown = new Map<string, string>();
  const labelOf = (primary: Checked): string => primary.name ?? hostText(hostOf(primary));

  function remove(label: string): void {
    const replication_id = shown.get(label);
    if (replication_id === undefined) return;
    metrics.primaryInfo.remove({ primary: label, replication_id });
    shown.delete(label);
  }

  function show(primary: Checked): void {
    const [label, replication_id] = [labelOf(primary), known.get(primary)];
    if (replication_id === undefined || shown.get(label) === replication_id) return;
    // Former primaries are not checked any more.
    const present = new Set(primaries().map(labelOf));
    for (const other of shown.keys()) if (!present.has(other)) remove(other);
    remove(label);
    metrics.primaryInfo.set({ primary: label, replication_id }, 1);
    shown.set(label, replication_id);
  }

  return {
    hide: (primary: Checked): void => remove(labelOf(primary)),
    show,
    learn: (primary: Checked, replid: string): void => void known.set(primary, replid),
  };
}

const hostOf = ({ endpoint: { at, redisUrl } }: Pick<Checked, "endpoint">): RedisHost => {
  const { host, port } = at ?? parseRedisAddress(redisUrl).hosts[0]!;
  return { host, port };
};

async function recordIn(redis: Redis, name: string) {
  const [term, replid, left] = await redis.hmget(name, "term", "replid", "left");
  return { term: Number(term ?? 0), replid: replid ?? undefined, left: left ?? null };
}

const isStillPrimary = (endpoint: RedisEndpoint, { at, replid }: Term): Promise<boolean> =>
  dial(endpoint, at, async (redis) => (await primaryRunOf(redis))?.replid === replid).catch(() => false);

const dial = <T>(endpoint: RedisEndpoint, at: RedisHost, work: (redis: Redis) => Promise<T>): Promise<T> =>
  onOwnConnection({ ...endpoint, at }, { connecting: DIAL_LIMIT, command: DIAL_LIMIT }, work);

const leftText = ({ term, replid, at }: Term): string => `${term} ${replid} ${hostText(at)}`;

function replaced(left: string): StoreError {
  const [term = "", replid = "", at = ""] = left.split(" ");
  return new StoreError(
    `this primary was replaced: gateways use ${at} (term ${term}, replication id ${replid}), and this server still takes writes`,
    "stop it, and let REDIS_URL lead to the other; see TollgateTwoPrimaries in docs/operations/alerts-redis.md",
  );
}

function smallerTerm({ term, replid, at }: Term, storedTerm: number): StoreError {
  return new StoreError(
    `this primary is of an earlier time (term ${storedTerm}): this gateway has used ${hostText(at)} (term ${term}, replication id ${replid}) since`,
    "stop this server, or make it a replica of the other; see TollgateTwoPrimaries in docs/operations/alerts-redis.md",
  );
}
