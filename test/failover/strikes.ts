import { setTimeout as pause } from "node:timers/promises";
import { type Links, OUTSIDE } from "./links.ts";
import type { RedisNode } from "./node.ts";

/** Faults of the primary of a partition, and their names in the page of figures. */
export const FAULTS = {
  kill: "SIGKILL of the primary",
  pause: "SIGSTOP of the primary",
  cut: "nothing reaches the primary or comes from it",
  split: "the primary is cut off from all nodes, and the gateways still reach it",
  "lag, kill": "the replicas lag, and SIGKILL of the primary",
  "lag, pause": "the replicas lag, and SIGSTOP of the primary",
  "lag, cut": "the replicas lag, and the primary is cut off",
  stale: "a replica lags, the other one is away, and SIGKILL of the primary",
  loss: "SIGKILL of the primary, and a start with a shorter append-only file before any failover",
  replica: "SIGSTOP of a replica, so that nothing is confirmed",
  reset: "the primary's connections are reset while calls are in flight",
  move: "some of the primary's partitions move to another one in one step",
  "move slowly":
    "some of the primary's partitions move to another one name by name, and are not frozen meanwhile",
} as const;

export type Fault = keyof typeof FAULTS;

/** A fault under way. */
export interface Strike {
  /** The node that it befell. */
  victim: string;
  /** When it did, Unix ms. */
  atMs: number;
  /** Writes that the primary took between these moments may be lost with the next one, Unix ms; undefined where none may. */
  forgets?: readonly [fromMs: number, toMs: number] | undefined;
  /** The node is back, the link healed. */
  end(): Promise<void>;
}

/** The parts that all topologies have. */
export interface Servers {
  redisUrl: string;
  links: Links;
  /** All that a node may be cut off from, Sentinels too. */
  names: readonly string[];
  failsOver: boolean;
  /** Who owns a slot now. */
  owners(): Promise<(slot: number) => RedisNode | undefined>;
  replicasOf(primary: RedisNode): Promise<RedisNode[]>;
  /** Waits until another node is primary in place of this one. */
  replaced(old: RedisNode): Promise<unknown>;
  withoutFailover(work: () => Promise<void>): Promise<void>;
  /** Moves some of a primary's partitions to another one; `holdMs`: how long they are on their way before any name moves. */
  movePartitions?(from: RedisNode, holdMs: number): Promise<void>;
  healthy(): Promise<unknown>;
  stop(): Promise<void>;
}

/** How long a replica has received nothing when the primary is struck. */
const LAG_MS = 500;
/** Off the append-only file: the last charges. */
const LOST_BYTES = 4096;
/** Load between the last write that is kept for certain and the loss. */
const LOSS_MS = 700;
/** As above, where the other replica confirms meanwhile the writes that this one lacks. */
const STALE_LAG_MS = 1000;
/** Until Sentinels no longer count on a replica that is away. */
const AWAY_MS = 1300;
/** Shorter than a command may take. */
const IN_FLIGHT_MS = 300;
/** Many a charge comes meanwhile. */
const MOVING_MS = 1500;
/** How far a replica may be behind on a busy machine, and how late after its admission a request is seen upstream. */
const SLACK_MS = { before: 1000, after: 500 };
/** By then a primary without nodes refuses writes: `min-replicas-max-lag`, and the look at it, on a busy machine. */
const ALONE_MS = 5000;

/** No other node takes over. */
const KEEPS_ALL: ReadonlySet<Fault> = new Set(["replica", "reset", "move", "move slowly"]);

/** Two faults at once: what replicas have confirmed is lost, so a gateway that sends it again must not be killed as well. */
export const losesConfirmed = (fault: Fault): boolean => fault === "loss" || fault === "stale";

export async function strikeAt(servers: Servers, victim: RedisNode, fault: Fault): Promise<Strike> {
  const fromMs = Date.now();
  const strike = { victim: victim.name, ...(await STRIKES[fault](servers, victim)) };
  if (!servers.failsOver || KEEPS_ALL.has(fault)) return strike;
  const first = losesConfirmed(fault) || fault.startsWith("lag") ? fromMs : strike.atMs;
  const last = fault === "split" ? strike.atMs + ALONE_MS : strike.atMs;
  return { ...strike, forgets: [first - SLACK_MS.before, last + SLACK_MS.after] };
}

type Struck = Pick<Strike, "atMs" | "end">;

const STRIKES: Record<Fault, (servers: Servers, victim: RedisNode) => Promise<Struck>> = {
  async kill(_, victim) {
    const atMs = Date.now();
    await victim.kill();
    return { atMs, end: () => victim.start() };
  },
  async pause(_, victim) {
    victim.pause();
    return { atMs: Date.now(), end: async () => victim.resume() };
  },
  async cut({ links }, { name }) {
    links.cut(name);
    return { atMs: Date.now(), end: async () => links.heal(name) };
  },
  async split({ links, names }, { name }) {
    links.cut(name, { from: names.filter((other) => other !== name) });
    return { atMs: Date.now(), end: async () => links.heal(name) };
  },
  "lag, kill": (servers, victim) => whileLagging(servers, victim, "kill"),
  "lag, pause": (servers, victim) => whileLagging(servers, victim, "pause"),
  "lag, cut": (servers, victim) => whileLagging(servers, victim, "cut"),
  async stale(servers, victim) {
    const { links } = servers;
    const [lagging, away] = (await servers.replicasOf(victim)) as [RedisNode, RedisNode];
    links.cut(lagging.name, { from: [victim.name] });
    await pause(STALE_LAG_MS);
    away.pause();
    await pause(AWAY_MS);
    const { atMs } = await STRIKES.kill(servers, victim);
    links.heal(lagging.name, { discard: true });
    // A primary without any replica takes no writes.
    const back = servers.replaced(victim).finally(() => away.resume());
    back.catch(() => undefined);
    return {
      atMs,
      async end() {
        await back;
        await victim.start();
      },
    };
  },
  async loss(servers, victim) {
    let atMs = Date.now();
    const kept = victim.written();
    await pause(LOSS_MS);
    await servers.withoutFailover(async () => {
      atMs = Date.now();
      await victim.kill();
      victim.truncate(Math.min(LOST_BYTES, Math.max(0, victim.written() - kept)));
      await victim.start();
    });
    return { atMs, end: async () => undefined };
  },
  async replica(servers, victim) {
    const [replica] = await servers.replicasOf(victim);
    replica!.pause();
    return { atMs: Date.now(), end: async () => replica!.resume() };
  },
  async reset({ links }, victim) {
    victim.pause();
    await pause(IN_FLIGHT_MS);
    links.cut(victim.name, { how: "reset", from: [OUTSIDE] });
    victim.resume();
    links.heal(victim.name);
    return { atMs: Date.now(), end: async () => undefined };
  },
  async move(servers, victim) {
    const { links } = servers;
    const atMs = Date.now();
    // Commands that gateways send meanwhile arrive when the partitions have moved.
    links.cut(victim.name, { from: [OUTSIDE] });
    try {
      await servers.movePartitions!(victim, 0);
    } finally {
      links.heal(victim.name);
    }
    return { atMs, end: async () => undefined };
  },
  async "move slowly"(servers, victim) {
    const atMs = Date.now();
    await servers.movePartitions!(victim, MOVING_MS);
    return { atMs, end: async () => undefined };
  },
};

async function whileLagging(
  servers: Servers,
  victim: RedisNode,
  fault: "kill" | "pause" | "cut",
): Promise<Struck> {
  const { links } = servers;
  const replicas = await servers.replicasOf(victim);
  for (const { name } of replicas) links.cut(name, { from: [victim.name] });
  await pause(LAG_MS);
  const struck = await STRIKES[fault](servers, victim);
  for (const { name } of replicas) links.heal(name, { discard: true });
  return struck;
}
