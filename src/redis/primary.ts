import type { Redis } from "ioredis";
import type { Run } from "../scripts/script-definition.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { createRewriteWhenDue } from "./append-only-file.ts";
import { createAwayVerdict } from "./away-verdict.ts";
import { createBatcher, createCalls, createStoreClock, type Recover } from "./calls.ts";
import {
  clientOf,
  connectTimeoutMs,
  limitHandshakes,
  onOwnConnection,
  type RedisEndpoint,
} from "./client.ts";
import { type Confirmation, type ConfirmationRule, createConfirmation } from "./confirmation.ts";
import { Deadlines } from "./deadlines.ts";
import { checkUsable, createProbe, probeNameIn } from "./probes.ts";
import { inStoreWords } from "./reasons.ts";
import { jittered } from "./repeated-work.ts";
import { onceMoved } from "./script-errors.ts";
import { createScriptRunner, itemOf, type ScriptForm, type ScriptRunner } from "./script-runner.ts";
import { allowsCrossSlots } from "./store-facts.ts";
import type { FrozenPartitions } from "./topology/frozen-partitions.ts";
import { wordsOfNamed } from "./topology/placement.ts";

const CHECK_EVERY_MS = 15_000;

export interface StoreHooks {
  partitionOn(primary: Primary): number;
  /** @throws Error if this primary's server cannot be used; `redis` is any connection to it */
  checkServer(primary: Primary, redis: Redis): Promise<void>;
  /** Checks the server as `checkServer` does, and learns what it says of the whole store. */
  learnFacts(primary: Primary, deadlines: Deadlines): Promise<void>;
  /** Part of each probe, after which the breaker closes. @throws to keep it open */
  beforeUse(primary: Primary): Promise<void>;
  /** Called as the breaker closes. @returns why it has to open again at once, if it has to */
  unfinished(primary: Primary): string | undefined;
  isClustered(): boolean;
  /** The primary that has a name now. The servers are asked first, if this one should have it. */
  ownerNow(primary: Primary, name: string): Promise<Primary>;
  frozen: FrozenPartitions;
  changed(): void;
  usableAgain(): void;
}

interface PrimaryOptions extends RedisEndpoint {
  /** Its name among the servers of the store; undefined where the address is that of the one server. */
  name?: string | undefined;
  /** True if it has taken over from another primary while this process ran: then an outage ends as it is used first. */
  isSuccessor?: boolean | undefined;
  commandTimeoutMs: number;
  /** A clock for the scripts instead of the store's, Unix ms; for tests. */
  nowMs?: (() => number) | undefined;
  /** With it, `confirmation` says whether replicas have what the primary has answered. */
  confirm?: ConfirmationRule | undefined;
  store: StoreHooks;
  log: Logger;
  metrics: Metrics;
}

/**
 * One primary with its own breaker, batches, queue and clock. `run` throws GatewayError `store_unavailable` at once while the breaker is
 * open, else after the command timeout at the latest. Nothing connects before `start`.
 */
export function createPrimary(options: PrimaryOptions) {
  const { log, commandTimeoutMs, store } = options;
  const limits = limitsOf(commandTimeoutMs);
  const { within } = limits.command;
  const redis = sharedClient(options, limits.connecting);
  const slots = createSlotRule(store);
  const scripts = createScriptRunner(redis, { within, form: slots.form });
  const direct = runDirectly(scripts, store.frozen, slots.form);
  const clock = createStoreClock(options.nowMs);
  const check = createCheck(options, { redis, limit: limits.command, slots, primary: () => primary });
  const breaker: Breaker = new Breaker({
    log,
    words: options.name === undefined ? inStoreWords : wordsOfNamed(options.name, () => breaker.wasUsable),
    reconnect: () => replaceReady(redis),
    probe: createProbe({
      redis,
      run: direct,
      clock,
      within,
      name: () => probeNameOf(primary, store),
      check,
      beforeUse: () => store.beforeUse(primary),
    }),
    opened() {
      store.changed();
      rejectWaiting();
    },
    closed(wasAway) {
      store.changed();
      outage.over(wasAway || options.isSuccessor === true);
      useAgain(primary, store);
    },
  });
  const { rejectWaiting, ...calls } = createCalls({
    ...options,
    redis,
    scripts,
    breaker,
    clock,
    deadlines: limits.command,
    form: slots.form,
    ownerNow: (name) => store.ownerNow(primary, name),
    frozen: store.frozen,
  });
  const confirmation = confirmationOf(redis, options, () => store.partitionOn(primary));
  const probe = (): Promise<void> => probeApart(primary, options, limits);
  const outage = createAwayVerdict({ isOpen: () => breaker.isOpen, probe, log });
  const primary = {
    name: options.name,
    endpoint: { redisUrl: options.redisUrl, at: options.at, tlsCa: options.tlsCa },
    redis,
    scripts,
    breaker,
    nowMs: clock.nowMs,
    ...calls,
    direct: { run: direct, command: commandDirectly(redis, within) },
    ...outage.known,
    within,
    confirmation,
    ...createLife({ redis, breaker, within, check, rejectWaiting, confirmation }),
  };
  return primary;
}

/** Part of each probe, and done regularly while it is in use. */
function createCheck(
  { store, log, name }: PrimaryOptions,
  parts: {
    redis: Redis;
    limit: Deadlines;
    slots: ReturnType<typeof createSlotRule>;
    primary(): Primary;
  },
): () => Promise<void> {
  const { redis, limit, slots, primary } = parts;
  const rewriteWhenDue = createRewriteWhenDue({ redis, within: limit.within, log, name });
  return async () => {
    await store.learnFacts(primary(), limit);
    await slots.learn(redis, limit.within);
    await rewriteWhenDue();
  };
}

const probeNameOf = (primary: Primary, store: StoreHooks): string => probeNameIn(store.partitionOn(primary));

function useAgain(primary: Primary, store: StoreHooks): void {
  const unfinished = store.unfinished(primary);
  if (unfinished === undefined) store.usableAgain();
  else primary.breaker.trip(unfinished);
}

function probeApart(
  primary: Primary,
  options: PrimaryOptions,
  limits: ReturnType<typeof limitsOf>,
): Promise<void> {
  const { store } = options;
  const name = probeNameOf(primary, store);
  return onOwnConnection(options, limits, (own) =>
    checkUsable(own, { name, check: () => store.checkServer(primary, own) }),
  );
}

/** Instead of ioredis's own timers, which count the time in which this process stalls. */
const limitsOf = (commandTimeoutMs: number): Record<"command" | "connecting", Deadlines> => ({
  command: new Deadlines(commandTimeoutMs),
  connecting: new Deadlines(connectTimeoutMs(commandTimeoutMs)),
});

/** The connection that requests share. While it is being made, it has time limits of its own. */
function sharedClient(options: PrimaryOptions, connecting: Deadlines): Redis {
  const redis = clientOf(options, { connectTimeout: connectTimeoutMs(options.commandTimeoutMs) });
  limitHandshakes(redis, connecting);
  return redis;
}

/** Reconnects a connection that is ready; one that is connecting already goes on. */
function replaceReady(redis: Redis): void {
  if (redis.status === "ready") redis.disconnect(true);
}

const confirmationOf = (
  redis: Redis,
  options: PrimaryOptions,
  partition: () => number,
): Confirmation | undefined =>
  options.confirm ? createConfirmation(redis, { ...options, ...options.confirm, partition }) : undefined;

/** Decides if a call to this server may have items of several slots. */
function createSlotRule({ isClustered }: StoreHooks) {
  const form: ScriptForm = { checksFrozen: false, crossesSlots: false };
  return {
    async learn(redis: Redis, within: Deadlines["within"]): Promise<void> {
      form.crossesSlots = isClustered() && (await within(allowsCrossSlots(redis)));
      form.checksFrozen = isClustered();
    },
    form,
  };
}

/** Past the breaker, batched per tick as well; what Redis says of frozen partitions is noted all the same. */
function runDirectly(scripts: ScriptRunner, frozen: FrozenPartitions, form: Readonly<ScriptForm>): Run {
  const { send } = scripts;
  const batched = createBatcher({ send, sendAgain: send, form });
  const note: Recover = async (_script, _call, { keys }, error) => {
    frozen.refuses(keys[0]!, error);
    throw error;
  };
  return (script, call) => {
    const item = itemOf(script, call);
    if (script.isBatched) return batched(script, call, item, note);
    return scripts.run(script, call).catch((error: unknown) => note(script, call, item, error));
  };
}

const commandDirectly =
  (redis: Redis, within: Deadlines["within"]) =>
  <T>(work: (client: Redis) => Promise<T>): Promise<T> =>
    onceMoved(() => within(work(redis)));

function createLife(parts: {
  redis: Redis;
  breaker: Breaker;
  within: Deadlines["within"];
  check(): Promise<void>;
  rejectWaiting(): void;
  confirmation: Confirmation | undefined;
}) {
  const { redis, breaker, within, check, rejectWaiting, confirmation } = parts;
  let checking: NodeJS.Timeout | undefined;

  return {
    start(): void {
      redis.on("close", () => breaker.trip("the connection closed"));
      breaker.trip(STARTING);
      confirmation?.start();
      // A server that is replaced, or whose policy is changed, under an open connection is found here.
      checking = setInterval(() => {
        if (!breaker.isOpen) check().catch((error: unknown) => breaker.trip(inStoreWords(error)));
      }, CHECK_EVERY_MS).unref();
    },
    /** No longer a part of the store: calls without a reply fail; what they settle is deferred, and an ADMIT is voided. */
    leave(): void {
      clearInterval(checking);
      breaker.openForGood();
      rejectWaiting();
      confirmation?.close();
      redis.disconnect();
    },
    async close(): Promise<void> {
      clearInterval(checking);
      breaker.stop();
      confirmation?.close();
      if (redis.status === "ready") await within(redis.quit()).catch(() => redis.disconnect());
      else redis.disconnect();
    },
  };
}

export type Primary = ReturnType<typeof createPrimary>;

const PROBE_MIN_MS = 50;
const PROBE_MAX_MS = 1000;
/** After this many failed probes in a row the connection is replaced: one whose packets are dropped never closes. */
const PROBES_BEFORE_RECONNECT = 2;

/** Initial open state, before the first probe. */
const STARTING = "starting";

interface BreakerOptions {
  /** Throws while the store is unusable. */
  probe(): Promise<void>;
  reconnect(): void;
  opened(): void;
  /** @param wasAway false if the first probe of this process succeeded at once */
  closed(wasAway: boolean): void;
  words(error: unknown): string;
  log: Logger;
}

/** One failure opens it, one successful probe closes it: a hiccup costs a probe's time and an outage costs requests nothing. */
class Breaker {
  /** While open no request waits for the store. A field, since each request reads it. */
  isOpen = false;
  wasUsable = false;
  readonly #options: BreakerOptions;
  #isStopped = false;
  #timer: NodeJS.Timeout | undefined;
  #waiting: (() => void)[] = [];
  readonly #logged = new Set<string>();

  constructor(options: BreakerOptions) {
    this.#options = options;
  }

  /** A call failed in a way that says the store may be away: opens, and probes in the background. */
  trip(why: string): void {
    const { opened, log } = this.#options;
    if (this.isOpen || this.#isStopped) return;
    this.isOpen = true;
    opened();
    if (why === STARTING) log.debug("connecting to the store");
    else log.warn({ why }, "the store does not answer as it should; requests no longer wait for it");
    void this.#attempt(0);
  }

  /** Resolves once the breaker has closed, or is open for good. */
  closed(): Promise<void> {
    return this.isOpen ? new Promise((resolve) => this.#waiting.push(resolve)) : Promise.resolve();
  }

  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#timer);
  }

  openForGood(): void {
    this.stop();
    this.isOpen = true;
    this.#resolveWaiting();
  }

  async #attempt(failures: number): Promise<void> {
    const { probe, closed, log } = this.#options;
    try {
      await probe();
    } catch (error) {
      if (!this.#isStopped) this.#attemptLater(failures, error);
      return;
    }
    if (this.#isStopped) return;
    const wasAway = this.wasUsable || failures > 0;
    this.isOpen = false;
    this.wasUsable = true;
    this.#logged.clear();
    closed(wasAway);
    log.info("the store is usable");
    this.#resolveWaiting();
  }

  #attemptLater(failures: number, error: unknown): void {
    const { words, reconnect, log } = this.#options;
    const why = words(error);
    if (failures % 20 === 0 || !this.#logged.has(why)) {
      this.#logged.add(why);
      log.error({ why }, "the store is unusable; see `tollgate doctor`");
    }
    if ((failures + 1) % PROBES_BEFORE_RECONNECT === 0) reconnect();
    const waitMs = Math.min(PROBE_MAX_MS, PROBE_MIN_MS * 2 ** Math.min(failures, 10));
    this.#timer = setTimeout(() => void this.#attempt(failures + 1), jittered(waitMs)).unref();
  }

  #resolveWaiting(): void {
    for (const resolve of this.#waiting) resolve();
    this.#waiting = [];
  }
}
