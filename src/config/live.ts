import { statSync } from "node:fs";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { type Config, type Loaded, readConfig } from "./config.ts";
import {
  type Difference,
  differences,
  hashOf,
  inWords,
  redactSettings,
  withoutRestarts,
} from "./differences.ts";
import { fromDiskAtOnce } from "./document.ts";
import { type ConfigProblem, printed } from "./problems.ts";
import { toConfig } from "./snapshot.ts";
import { describeCertificate, sameMaterial } from "./tls.ts";
import { type Contents, holds, watchFiles } from "./watch.ts";

const LOOK_EVERY_MS = 300;
const PROBLEMS_LOGGED_MAX = 50;

/** What a change of the snapshot means to the rest of the gateway. */
export interface ChangeHooks {
  /** Makes what depends on the next snapshot. If it throws, the old one stays in force. */
  prepare(next: Config): void;
  /** Called when the next one is in force. */
  applied(next: Config, previous: Config): void;
}

/** What came of an attempt: a `refused` one leaves everything as it was, an `unchanged` one found nothing new. */
export type Reload = "changed" | "unchanged" | "refused";

export type LiveConfig = ReturnType<typeof createLiveConfig>;

/**
 * The configuration of a running gateway: one snapshot in force, replaced as a whole by the next valid one. Whoever
 * holds a snapshot may go on with it.
 */
export function createLiveConfig(options: {
  loaded: Loaded;
  log: Logger;
  metrics: Metrics;
  lookEveryMs?: number;
}) {
  const { log, metrics } = options;
  const { source } = options.loaded;
  const hooks: ChangeHooks[] = [];
  let inForce = options.loaded;
  let inForceSinceMs = Date.now();
  /** What the files held at the last attempt, be it good or bad. */
  let attempted = inForce.contents;
  let awaitingRestart: readonly Difference[] = [];
  let last: { atMs: number; problems: readonly ConfigProblem[] } = { atMs: inForceSinceMs, problems: [] };
  let watching: { stop(): void } | undefined;

  const written = ({ settings, config }: Loaded) => ({
    settings,
    prices: config.prices,
    upstreamCa: config.upstream.tlsCa,
  });

  function succeeded(): void {
    metrics.configReloadSuccessful.set(1);
    metrics.configReloadedAt.set(Date.now() / 1000);
    metrics.configAwaitingRestart.set(awaitingRestart.length);
    metrics.configInfo.reset();
    metrics.configInfo.set({ hash: hashOf(written(inForce)) }, 1);
    last = { atMs: Date.now(), problems: [] };
  }
  succeeded();

  function refused(problems: readonly ConfigProblem[]): Reload {
    metrics.configReloadSuccessful.set(0);
    last = { atMs: Date.now(), problems };
    for (const problem of problems.slice(0, PROBLEMS_LOGGED_MAX)) {
      const { file, line, path: setting } = problem;
      log.error({ file, line, setting }, `configuration: ${printed(problem)}`);
    }
    log.error({ problems: problems.length }, "the new configuration is refused; the old one stays in force");
    return "refused";
  }

  /** Other files need a restart; the same files with something new in them do not. */
  function tlsOf(listener: "server" | "admin", next: Loaded): Loaded["extras"]["tls"]["server"] {
    const named = ({ settings }: Loaded) => JSON.stringify(settings[listener].tls);
    return (named(next) === named(inForce) ? next : inForce).extras.tls[listener];
  }

  function accept(next: Loaded): Reload {
    awaitingRestart = differences(written(inForce), written(next)).filter(({ needsRestart }) => needsRestart);
    if (awaitingRestart.length > 0) {
      log.warn(
        { settings: awaitingRestart.map(inWords) },
        "some settings have changed that need a restart; their old values stay in force",
      );
    }
    const settings = withoutRestarts(inForce.settings, next.settings);
    const extras = { ...next.extras, tls: { server: tlsOf("server", next), admin: tlsOf("admin", next) } };
    const config = toConfig(settings, extras);
    const mixed: Loaded = { ...next, settings, config, extras };
    const changes = [...differences(written(inForce), written(mixed)), ...renewals(inForce.config, config)];
    if (changes.length === 0) {
      if (last.problems.length > 0) log.info("the configuration is valid again");
      succeeded();
      return "unchanged";
    }
    for (const { prepare } of hooks) prepare(config);
    const previous = inForce.config;
    inForce = mixed;
    inForceSinceMs = Date.now();
    succeeded();
    for (const { applied } of hooks) applied(config, previous);
    log.info({ changes: changes.map(inWords) }, "a new configuration is in force");
    return "changed";
  }

  /** @param settled what the files hold, if that is known; else they are read now */
  function attempt(settled?: Contents): Reload | undefined {
    const { loaded, problems, contents } = readConfig({
      ...source,
      read: (file) => settled?.get(file) ?? fromDiskAtOnce(file),
    });
    // It names a price file that was not watched yet, or one changed just now: seen whole at the next look.
    const isSettled = settled === undefined || holds(settled, contents);
    attempted = isSettled ? contents : new Map([...contents.keys()].map((file) => [file, undefined]));
    if (!isSettled) return undefined;
    if (loaded === undefined) return refused(problems);
    try {
      return accept(loaded);
    } catch (error) {
      log.error({ err: error }, "the new configuration cannot be put in force");
      return refused([{ file: source.file, path: "", message: `cannot be put in force: ${String(error)}` }]);
    }
  }

  return {
    /** The snapshot in force. */
    config: (): Config => inForce.config,
    /** From now on, changes come with these hooks. */
    onChange: (on: ChangeHooks): void => void hooks.push(on),
    /** Reads the files now, whether or not they have changed. @param why for the log */
    reload(why: string): Reload {
      log.info({ why, file: source.file }, "reading the configuration again");
      const outcome = attempt() ?? "unchanged";
      if (outcome === "unchanged") log.info("the configuration is as it was");
      return outcome;
    },
    /** Begins to look for changes of the files, until `stop`. */
    watch(): void {
      // A pipe can be read once.
      if (![...attempted.keys()].every((file) => statSync(file).isFile())) return;
      watching ??= watchFiles({
        everyMs: options.lookEveryMs ?? LOOK_EVERY_MS,
        known: () => attempted,
        changed: (contents) => void attempt(contents),
      });
    },
    stop: (): void => watching?.stop(),
    /** What is in force, as the admin port shows it. */
    describe: () => ({
      hash: hashOf(written(inForce)),
      in_force_since: new Date(inForceSinceMs).toISOString(),
      file: source.file,
      prices_file: inForce.config.pricesFile,
      settings: redactSettings(inForce.settings),
      prices: inForce.config.prices,
      /** Setting to the environment variable that decides it. */
      from_environment: Object.fromEntries(inForce.origins),
      awaiting_restart: awaitingRestart.map(({ setting, to }) => ({ setting, file: to })),
      last_reload: {
        at: new Date(last.atMs).toISOString(),
        successful: last.problems.length === 0,
        problems: last.problems,
      },
    }),
  };
}

/** Certificates that were renewed under the same file names. */
function renewals(before: Config, after: Config): Omit<Difference, "needsRestart">[] {
  return (["server", "admin"] as const).flatMap((listener) => {
    const [from, to] = [before[listener].tls, after[listener].tls];
    if (!from || !to || sameMaterial(from, to)) return [];
    return [{ setting: `${listener}.tls`, from: describeCertificate(from), to: describeCertificate(to) }];
  });
}
