import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { patchAccount } from "../../src/operations/accounts/operator-accounts.ts";
import { adjustCredits } from "../../src/operations/credits/adjustments.ts";
import { refundTask } from "../../src/operations/credits/refunds.ts";
import { issueKey } from "../../src/operations/keys/issue-key.ts";
import { cliActor } from "../../src/records/actor.ts";
import type { RedisNodes } from "../../src/redis/store-facts.ts";
import type { Customer } from "./client.ts";
import {
  type GatewayProcess,
  type GatewaySettings,
  outboxEntries,
  startGateway,
  writeGatewayConfig,
} from "./gateways.ts";
import type {
  AccountFacts,
  ByHand,
  ClientEvent,
  FaultEvent,
  History,
  LinkEvent,
  Meta,
  StoreEntry,
} from "./history.ts";
import { faultsInLogs } from "./logs.ts";
import { createRandom, type Random } from "./random.ts";
import { countOpen, readStore, verifyStore } from "./snapshot.ts";
import { FaultUpstream } from "./upstream.ts";

/** After at most 90 s nothing is open any more; looked at for a little longer, to tell late from never. */
const QUIESCENCE_MAX_MS = 100_000;
/** One machine, one clock: only the event loops' delays lie between the stamps. */
const TOLERANCE_MS = 50;
const MAX_AGE_MS = 7_200_000;
const UNKNOWN_OUTCOMES_MAX = 1000;

/** Options of a run of a scenario. */
export interface RunOptions {
  scenario: string;
  seed: number;
  /** Where the history, the journal and the logs go. */
  folder: string;
  /** The source tree whose gateways are run; a mutant's for negative controls. */
  root: string;
  /** Instead of the usual 100 s, where nobody expects quiescence. */
  quiescenceMaxMs?: number;
  /** Of the seeded bugs, only those whose name has this. */
  control?: string;
  progress(line: string): void;
}

/** Settings of one gateway. */
export interface OwnSettings extends Partial<GatewaySettings> {
  /** Where its log goes. */
  log?: string;
  /** False: it has started when it listens. */
  waitsForStore?: boolean;
}

export interface FleetOptions {
  /** One more gateway, after the slots, sweeps alone: what the others had claimed when they were killed is then nothing. */
  sweeperApart?: boolean;
  /** Short where timeouts are the point; else so long that a busy machine makes none. */
  commandTimeoutMs?: number;
  /** To the upstream; few where they are the point. */
  connections?: number;
  /** Of tasks; so long that none ends for it, unless it is the point. */
  maxAgeMs?: number;
  /** Until the gateways poll a task that nobody polls. */
  pollIntervalMs?: number;
  /** Requests with an unknown outcome that an account may have; so many that none is refused for it, unless it is the point. */
  unknownOutcomesMax?: number;
  /** Of a new store. */
  partitions?: number;
  /** Replicas that must have a charge before it is answered; as the gateways decide when left out. */
  confirmReplicas?: number | undefined;
  /** The gateways' `store.fallback_strategy`; `deny` when left out. */
  fallbackStrategy?: "allow";
  /** Of a PostgreSQL that the gateways copy the ledger to. */
  archiveUrl?: string;
  /** Section `webhooks` of the gateways. */
  webhooks?: object;
  /** False: a gateway has started when it listens, though its store may be away. */
  waitsForStore?: boolean;
}

/** The store as the gateways of a fleet are told of it, and as the history reads it. */
export interface FleetStore {
  /** REDIS_URL of one gateway. */
  listen(gateway: string): Promise<string>;
  /** Where the store's names are now. */
  nodes(): Promise<RedisNodes>;
  /** Data between gateways and store, where a proxy has recorded it. */
  linkEvents(): LinkEvent[];
}

/** Facts that only some worlds have about their stores. */
export type StoreFacts = Pick<History, "forgotten" | "otherStore"> & Pick<Meta, "clockAheadMs">;

/** Gateways over one store, an upstream that misbehaves when asked to, customers, and what all of them have seen. */
export interface Fleet {
  options: RunOptions;
  random: Random;
  upstream: FaultUpstream;
  /** The living gateway of each slot; undefined while it is being started again. */
  gateways: (GatewayProcess | undefined)[];
  accounts: AccountFacts[];
  client: ClientEvent[];
  faults: FaultEvent[];
  byHand: ByHand[];
  /** Does something twice at a time, as two operators would, and notes what they are told. */
  operate(what: Omit<ByHand, "outcomes">): Promise<void>;
  /** A customer with room for anything, but for what is named. @param accountId a random one when left out */
  givenCustomer(limits?: Partial<AccountFacts>, accountId?: string): Promise<Customer>;
  /** Starts a new process in a slot, over the same journal folder. */
  startIn(slot: number, own?: OwnSettings): Promise<GatewayProcess>;
  /** Changes the config file of the gateway of a slot, which reads it again by itself. */
  reconfigure(slot: number, own: Partial<GatewaySettings>): void;
  /** SIGKILL to the process of a slot. */
  kill(slot: number, phase: string): void;
  note(kind: string, phase?: string): void;
  /** Where the store's names are now. */
  nodes(): Promise<RedisNodes>;
  /** All that was recorded so far, and the content of the store. */
  history(facts?: Partial<StoreFacts>): Promise<History>;
  /** Waits until nothing is open, reads the store, and puts the history together. */
  finish(facts?: Partial<StoreFacts>): Promise<History>;
  stopGateways(): Promise<void>;
}

/** Starts nothing: `startAll` does. */
export function createFleet(
  options: RunOptions,
  slots: number,
  fleetOptions: FleetOptions,
  store: FleetStore,
): Fleet & { startAll(): Promise<void> } {
  mkdirSync(options.folder, { recursive: true });
  const startedMs = Date.now();
  const gateways = Array.from({ length: slots }, (): GatewayProcess | undefined => undefined);
  const faults: FaultEvent[] = [];
  const accounts: AccountFacts[] = [];
  const upstream = new FaultUpstream();
  const starter = createStarter(options, slots, fleetOptions, { store, upstream, gateways, faults });
  const fleet: Fleet = {
    options,
    random: createRandom(options.seed),
    upstream,
    gateways,
    accounts,
    client: [],
    faults,
    byHand: [],
    operate: async (what) =>
      void fleet.byHand.push({ ...what, outcomes: await operate(await store.nodes(), what) }),
    givenCustomer: async (wanted = {}, accountId = undefined) =>
      issueCustomer(await store.nodes(), accounts, wanted, accountId),
    startIn: starter.startIn,
    reconfigure: starter.reconfigure,
    kill(slot, phase) {
      const gateway = gateways[slot];
      if (!gateway) return;
      faults.push({ kind: "kill", atMs: Date.now(), gateway: gateway.name, phase });
      gateway.kill();
      gateways[slot] = undefined;
    },
    note: (kind, phase = "") => void faults.push({ kind, atMs: Date.now(), gateway: "", phase }),
    nodes: store.nodes,
    history: (facts = {}) => historyOf(fleet, store, starter.settingsOf, { startedMs, ...facts }),
    async finish(facts = {}) {
      const from = Date.now();
      const { quiescenceMaxMs = QUIESCENCE_MAX_MS } = options;
      const quiet = await quiescence(fleet, await store.nodes(), from + quiescenceMaxMs);
      const quiescenceMs = Date.now() - from;
      return historyOf(fleet, store, starter.settingsOf, { startedMs, quiet, quiescenceMs, ...facts });
    },
    async stopGateways() {
      await starter.stop();
      upstream.stop();
    },
  };
  const startAll = async (): Promise<void> => {
    await Promise.all(gateways.map((_, slot) => fleet.startIn(slot)));
    if (fleetOptions.sweeperApart) await fleet.startIn(slots);
  };
  return Object.assign(fleet, { startAll });
}

const ANN = { by: "cli ann", requestId: "" };

function operate(nodes: RedisNodes, what: Omit<ByHand, "outcomes">): Promise<string[]> {
  const { kind, accountId, taskId, references, amount } = what;
  const reason = "the campaign";
  return Promise.all(
    references.map((reference) => {
      const done =
        kind === "adjust"
          ? adjustCredits(nodes, accountId, { amount, reason, reference }, ANN)
          : refundTask(nodes, taskId, { reason, reference }, ANN);
      return done.then(
        ({ outcome }) => outcome,
        (error: Error & { code?: string }) => error.code ?? error.message,
      );
    }),
  );
}

async function issueCustomer(
  nodes: RedisNodes,
  accounts: AccountFacts[],
  wanted: Partial<AccountFacts>,
  wantedId: string | undefined,
): Promise<Customer> {
  const limits = {
    granted: 10_000_000,
    rate_limit: 1_000_000,
    max_concurrent: 10_000,
    daily_limit: 10_000_000,
  };
  const facts = { ...limits, ...wanted };
  const { granted: credits, rate_limit, max_concurrent, daily_limit, monthly_credits, areOfAccount } = facts;
  const narrow = { rate_limit, max_concurrent, daily_limit };
  const own = areOfAccount ? limits : narrow;
  const issued = await issueKey(
    nodes,
    { credits, limits: { ...own, monthly_credits }, accountId: wantedId },
    cliActor(),
  );
  const { key, keyId, accountId } = issued;
  if (areOfAccount) await patchAccount(nodes, accountId, { limits: narrow }, cliActor("campaign"));
  accounts.push({ ...facts, accountId, keyId });
  return { key, keyId, accountId };
}

/** Starts gateways, each with a name, a config file and a log of its own. */
function createStarter(
  { folder, root }: RunOptions,
  slots: number,
  { sweeperApart = false, waitsForStore: allWait, ...settings }: FleetOptions,
  {
    store,
    upstream,
    gateways,
    faults,
  }: Pick<Fleet, "upstream" | "gateways" | "faults"> & { store: FleetStore },
) {
  const all: GatewayProcess[] = [];
  const settingsOf = new Map<string, GatewaySettings>();
  let started = 0;
  let stopped = false;

  function configure(name: string, settings: GatewaySettings): void {
    settingsOf.set(name, settings);
    writeGatewayConfig(folder, name, settings);
  }
  const spawned = (gateway: GatewayProcess): void => {
    all.push(gateway);
    if (stopped) gateway.kill();
  };
  async function startIn(slot: number, wanted: OwnSettings = {}): Promise<GatewayProcess> {
    const { log, waitsForStore = allWait, ...own } = wanted;
    const name = `g${slot}-${started++}`;
    const redisUrl = await store.listen(name);
    configure(name, {
      commandTimeoutMs: 2000,
      sweeps: !sweeperApart || slot === slots,
      journal: join(folder, "journal"),
      upstreamUrl: await upstream.listen(slot, name),
      maxAgeMs: MAX_AGE_MS,
      unknownOutcomesMax: UNKNOWN_OUTCOMES_MAX,
      ...settings,
      ...own,
    });
    if (stopped) throw new Error("the world was stopped");
    const start = (): Promise<GatewayProcess> =>
      startGateway({
        root,
        folder,
        name,
        redisUrl,
        archiveUrl: settings.archiveUrl,
        hasWebhooks: settings.webhooks !== undefined,
        log,
        waitsForStore,
        spawned,
      });
    // Once more for one that something else on this machine has ended before it was ready.
    const gateway = await start().catch((error: Error) => {
      faults.push({ kind: "started again", atMs: Date.now(), gateway: name, phase: error.message });
      return start();
    });
    gateways[slot] = gateway;
    return gateway;
  }
  return {
    settingsOf,
    startIn,
    reconfigure(slot: number, own: Partial<GatewaySettings>): void {
      const { name } = gateways[slot]!;
      configure(name, { ...settingsOf.get(name)!, ...own });
    },
    async stop(): Promise<void> {
      stopped = true;
      await Promise.all(all.filter(({ alive }) => alive).map((gateway) => gateway.stop()));
    },
  };
}

type Collected = Partial<StoreFacts & Pick<Meta, "quiet" | "quiescenceMs">> & Pick<Meta, "startedMs">;

/** Reads the store, and puts the history together. */
async function historyOf(
  { options, accounts, client, upstream, faults, byHand }: Fleet,
  store: FleetStore,
  settingsOf: ReadonlyMap<string, GatewaySettings>,
  collected: Collected,
): Promise<History> {
  const { scenario, seed, folder } = options;
  const { startedMs, quiet = true, quiescenceMs = 0, clockAheadMs = 0 } = collected;
  const nodes = await store.nodes();
  const meta: Meta = {
    scenario,
    seed,
    startedMs,
    endedMs: Date.now(),
    quiescenceMs,
    quiet,
    toleranceMs: TOLERANCE_MS,
    clockAheadMs,
    clock: "redis",
    accounts,
    byHand,
    maxAgesMs: Object.fromEntries([...settingsOf].map(([name, { maxAgeMs }]) => [name, maxAgeMs])),
    unknownOutcomesMax: Math.max(...[...settingsOf.values()].map((settings) => settings.unknownOutcomesMax)),
    verified: await verifyStore(nodes).catch((error: Error) => [`verifyLedger: ${error.message}`]),
  };
  const loggedFaults = faultsInLogs(folder, [...settingsOf.keys()]);
  const entries = await readStore(nodes);
  const names = new Set(entries.map(({ name }) => name));
  const { forgotten = [], otherStore = [] } = collected;
  return {
    meta,
    client,
    upstream: upstream.events,
    link: store.linkEvents(),
    faults: [...faults, ...loggedFaults],
    store: entries,
    forgotten: forgotten.filter(({ name }: StoreEntry) => !names.has(name)),
    otherStore,
  };
}

/** Settlements that the living gateways still keep for the store. */
export async function settlementsWaiting({ gateways }: Pick<Fleet, "gateways">): Promise<number> {
  const waiting = await Promise.all(
    gateways.map((gateway) => (gateway?.alive ? outboxEntries(gateway) : Promise.resolve(0))),
  );
  return waiting.reduce((sum, entries) => sum + entries, 0);
}

async function quiescence(fleet: Fleet, nodes: RedisNodes, deadline: number): Promise<boolean> {
  for (;;) {
    const open = (await settlementsWaiting(fleet)) + (await countOpen(nodes, fleet.accounts));
    if (open === 0) return true;
    if (Date.now() > deadline) return false;
    await pause(250);
  }
}

/** A gateway that lives now, the wanted one if it does; waits while none does. */
export async function anyGateway(
  { gateways }: Pick<Fleet, "gateways">,
  wanted: number,
): Promise<GatewayProcess> {
  for (;;) {
    for (let at = 0; at < gateways.length; at++) {
      const gateway = gateways[(wanted + at) % gateways.length];
      if (gateway?.alive) return gateway;
    }
    await pause(5);
  }
}
