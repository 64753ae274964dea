import { statSync } from "node:fs";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { type Config, type Loaded, type Reading, readConfig } from "./config.ts";
import {
  type Difference,
  differences,
  hashOf,
  inWords,
  type Written,
  withoutRestarts,
} from "./differences.ts";
import { priceProblems, unconfirmedPriceChanges } from "./price-changes.ts";
import { listInForce, writtenPrices } from "./price-lists.ts";
import { type ConfigProblem, printed } from "./problems.ts";
import { redactSettings } from "./redact.ts";
import { toConfig } from "./runtime-config.ts";
import { certificateValidities, describeCertificate, sameMaterial } from "./tls.ts";
import { type Contents, holds, watchFiles } from "./watch.ts";
import { fromDiskAtOnce, printedName } from "./yaml-file.ts";

const LOOK_EVERY_MS = 1000;
const PROBLEMS_LOGGED_MAX = 50;

export interface ChangeHooks {
  /** Reasons to refuse a valid configuration; empty for none. */
  refuses?(next: Config, before: Config): ConfigProblem[];
  /** May throw; then the old one stays in force. */
  prepare(next: Config): void;
  applied(next: Config, previous: Config): void;
}

type Reload = "changed" | "unchanged" | "refused";

interface LiveOptions {
  loaded: Loaded;
  log: Logger;
  metrics: Metrics;
  lookEveryMs?: number;
}

/** One snapshot is in force and replaced as a whole. A request keeps its snapshot. */
export class LiveConfig {
  readonly #options: LiveOptions;
  readonly #hooks: ChangeHooks[] = [];
  #inForce: Loaded;
  #inForceSinceMs = Date.now();
  #attempted: Contents;
  #hash = "";
  /** With `reload: signal`: changed content that waits for SIGHUP. */
  #awaitingSignal: { contents: Contents; reading?: Reading } | undefined;
  #awaitingRestart: readonly Difference[] = [];
  #last: { atMs: number; problems: readonly ConfigProblem[] } = { atMs: Date.now(), problems: [] };
  #watching: { stop(): void } | undefined;

  constructor(options: LiveOptions) {
    this.#options = options;
    this.#inForce = options.loaded;
    this.#attempted = options.loaded.contents;
    this.#succeed();
  }

  readonly config = (): Config => this.#inForce.config;

  /** Settings of the file that a variable replaces, each with the variable's name. */
  readonly hidden = (): ReadonlyMap<string, string> => this.#inForce.hidden;

  /** Of what is in force. */
  get hash(): string {
    return this.#hash;
  }

  get file(): string {
    return this.#options.loaded.source.file;
  }

  onChange(hooks: ChangeHooks): void {
    this.#hooks.push(hooks);
  }

  reload(why: string): Reload {
    const { log, loaded } = this.#options;
    log.info({ why, file: loaded.source.file }, "reading the configuration again");
    const outcome = this.#attempt() ?? "unchanged";
    if (outcome === "unchanged") log.info("the configuration is as it was");
    return outcome;
  }

  watch(): void {
    // A pipe can be read once.
    if (![...this.#attempted.keys()].every((file) => statSync(file).isFile())) return;
    this.#watching ??= watchFiles({
      everyMs: this.#options.lookEveryMs ?? LOOK_EVERY_MS,
      known: () => this.#attempted,
      changed: (contents) => this.#changed(contents),
    });
  }

  readonly stop = (): void => this.#watching?.stop();

  readonly describe = () => ({
    hash: this.#hash,
    in_force_since: new Date(this.#inForceSinceMs).toISOString(),
    file: this.#inForce.source.file,
    prices_file: listInForce(this.#inForce.config).file,
    settings: redactSettings(this.#inForce.settings),
    prices: writtenPrices(this.#inForce.config.priceLists),
    from_environment: Object.fromEntries(this.#inForce.origins),
    awaiting_signal: this.#awaitingSignal !== undefined,
    awaiting_restart: this.#awaitingRestart.map(({ setting, to }) => ({ setting, file: to })),
    last_reload: {
      at: new Date(this.#last.atMs).toISOString(),
      successful: this.#last.problems.length === 0,
      problems: this.#last.problems,
    },
  });

  /** Differences and problems of the files that wait for SIGHUP, or were read last. */
  readonly describeFiles = (): { differs: readonly Difference[]; problems: readonly ConfigProblem[] } => {
    const waiting = this.#readWaiting();
    if (!waiting) return { differs: this.#awaitingRestart, problems: this.#last.problems };
    if (!waiting.loaded) return { differs: [], problems: waiting.problems };
    const { changes, awaitingRestart } = changesBetween(this.#inForce, waiting.loaded);
    return { differs: [...changes, ...awaitingRestart], problems: this.#slips(waiting.loaded) };
  };

  #readWaiting(): Reading | undefined {
    const waiting = this.#awaitingSignal;
    if (!waiting) return undefined;
    const reading = waiting.reading ?? this.#read(waiting.contents);
    // A newly named file is not watched yet, so it may change.
    if (holds(waiting.contents, reading.contents)) waiting.reading = reading;
    return reading;
  }

  #read(settled?: Contents): Reading {
    const { source } = this.#options.loaded;
    return readConfig({ ...source, read: (file) => settled?.get(file) ?? fromDiskAtOnce(file) });
  }

  #changed(contents: Contents): void {
    if (this.config().reload === "auto") return void this.#attempt(contents);
    if (this.#awaitingSignal && holds(this.#awaitingSignal.contents, contents)) return;
    this.#awaitingSignal = { contents };
    this.#options.log.warn(
      "the configuration's files have changed; send SIGHUP to read them (reload: signal)",
    );
  }

  #attempt(settled?: Contents): Reload | undefined {
    const { loaded, problems, contents } = this.#read(settled);
    // The content names a price file that is not watched or just changed: the next poll reads all.
    const isSettled = settled === undefined || holds(settled, contents);
    this.#attempted = isSettled ? contents : new Map([...contents.keys()].map((file) => [file, undefined]));
    if (!isSettled) return undefined;
    this.#awaitingSignal = undefined;
    if (loaded === undefined) return this.#refuse(problems);
    const slips = this.#slips(loaded);
    if (slips.length > 0) return this.#refuse(slips);
    try {
      return this.#accept(loaded);
    } catch (error) {
      this.#options.log.error({ err: error }, "the new configuration cannot be put in force");
      return this.#refuse([
        { file: this.file, path: "", message: `cannot be put in force: ${String(error)}` },
      ]);
    }
  }

  /** Valid changes that are refused at run time as probable mistakes. */
  #slips({ config }: Loaded): ConfigProblem[] {
    const { table } = listInForce(this.config());
    const problems = config.priceLists.flatMap((list) =>
      priceProblems(unconfirmedPriceChanges(table, list.table, config.confirmedPrices), {
        confirmed: config.confirmedPrices,
        file: printedName(this.file),
        pricesFile: printedName(list.file),
      }),
    );
    return [...problems, ...this.#hooks.flatMap((hooks) => hooks.refuses?.(config, this.config()) ?? [])];
  }

  #accept(next: Loaded): Reload {
    const { log } = this.#options;
    const before = this.#inForce;
    const { mixed, changes, awaitingRestart } = changesBetween(before, next);
    this.#awaitingRestart = awaitingRestart;
    if (this.#awaitingRestart.length > 0) {
      log.warn(
        { settings: this.#awaitingRestart.map(inWords) },
        "some settings have changed that need a restart; their old values stay in force",
      );
    }
    if (changes.length === 0) {
      if (this.#last.problems.length > 0) log.info("the configuration is valid again");
      this.#succeed();
      return "unchanged";
    }
    for (const { prepare } of this.#hooks) prepare(mixed.config);
    this.#inForce = mixed;
    this.#inForceSinceMs = Date.now();
    this.#succeed();
    for (const { applied } of this.#hooks) applied(mixed.config, before.config);
    log.info({ changes: changes.map(inWords) }, "a new configuration is in force");
    return "changed";
  }

  #succeed(): void {
    const { metrics } = this.#options;
    this.#hash = hashOf(written(this.#inForce));
    metrics.configReloadSuccessful.set(1);
    metrics.configReloadedAt.set(Date.now() / 1000);
    metrics.configAwaitingRestart.set(this.#awaitingRestart.length);
    metrics.configInfo.reset();
    metrics.configInfo.set({ hash: this.#hash }, 1);
    metrics.certificateExpiry.reset();
    for (const { setting, expiryMs } of certificateValidities(this.#inForce.config)) {
      metrics.certificateExpiry.set({ setting }, expiryMs / 1000);
    }
    this.#last = { atMs: Date.now(), problems: [] };
  }

  #refuse(problems: readonly ConfigProblem[]): Reload {
    const { log, metrics } = this.#options;
    metrics.configReloadSuccessful.set(0);
    this.#last = { atMs: Date.now(), problems };
    for (const problem of problems.slice(0, PROBLEMS_LOGGED_MAX)) {
      const { file, line, path: setting } = problem;
      log.error({ file, line, setting }, `configuration: ${printed(problem)}`);
    }
    log.error({ problems: problems.length }, "the new configuration is refused; the old one stays in force");
    return "refused";
  }
}

const written = ({ settings, config }: Loaded): Written => ({
  settings,
  prices: writtenPrices(config.priceLists),
  contents: {
    "store.tls_ca": config.store.tlsCa,
    "upstream.tls_ca": config.upstream.tlsCa,
    "upstream.tls_cert": config.upstream.tlsCert && config.upstream.tlsCert + config.upstream.tlsKey,
    "upstream.adapter": moduleId(config.upstream.dialect),
    "upstream.previous_adapter": moduleId(config.upstream.previousDialect),
  },
});

/** Changes with the content of a module. */
const moduleId = (choice: Config["upstream"]["previousDialect"]): string | undefined =>
  choice === undefined || choice.id === choice.name ? undefined : choice.id;

function changesBetween(before: Loaded, next: Loaded) {
  const mixed = withoutRestart(before, next);
  const changes: Difference[] = [
    ...differences(written(before), written(mixed)),
    ...renewals(before.config, mixed.config),
  ];
  const awaitingRestart = differences(written(before), written(next)).filter((one) => one.needsRestart);
  return { mixed, changes, awaitingRestart };
}

function withoutRestart(current: Loaded, next: Loaded): Loaded {
  /** New file names need a restart; new content does not. */
  const tlsOf = (listener: "server" | "admin") => {
    const named = ({ settings }: Loaded) => JSON.stringify(settings[listener].tls);
    return (named(next) === named(current) ? next : current).extras.tls[listener];
  };
  const settings = withoutRestarts(current.settings, next.settings);
  const authorities = { ...next.extras.authorities, store: current.extras.authorities.store };
  const extras = { ...next.extras, authorities, tls: { server: tlsOf("server"), admin: tlsOf("admin") } };
  return { ...next, settings, extras, config: toConfig(settings, extras) };
}

function renewals(before: Config, after: Config): Difference[] {
  return (["server", "admin"] as const).flatMap((listener) => {
    const [from, to] = [before[listener].tls, after[listener].tls];
    if (!from || !to || sameMaterial(from, to)) return [];
    const [described, renewed] = [describeCertificate(from), describeCertificate(to)];
    return [{ setting: `${listener}.tls`, from: described, to: renewed, needsRestart: false }];
  });
}
