import {
  type Config,
  configPath,
  defaultConfig,
  type Loaded,
  readConfig,
  requireLoaded,
} from "../config/config.ts";
import { type Difference, differences, settingLeaves, type Written } from "../config/differences.ts";
import { hiddenInWords, SECRET_VARIABLES, variable } from "../config/environment.ts";
import { priceProblems, unconfirmedPriceChanges } from "../config/price-changes.ts";
import { isSingleTable, listInForce, writtenPrices } from "../config/price-lists.ts";
import { type ConfigProblem, printed } from "../config/problems.ts";
import { redactSetting, redactSettings } from "../config/redact.ts";
import { droppedTiers, missingTiers, tierProblems } from "../config/tiers-in-use.ts";
import { printedName } from "../config/yaml-file.ts";
import { hostsIn } from "../domain/redis-address.ts";
import { gapsInWords, readTierCounts, type TierCounts } from "../operations/keys/tier-counts.ts";
import { OperatorError } from "../records/operator-error.ts";
import { onOwnNodes } from "../redis/open-nodes.ts";
import { storeReason } from "../redis/reasons.ts";
import { command, group } from "./options.ts";
import { type CommandOutput, numbered, print, shownPath } from "./output.ts";
import { table } from "./terminal.ts";

const ADMIN_TIMEOUT_MS = 3000;
const TIERS_TIMEOUT_MS = 2000;
const UNKNOWN_COUNTS =
  "whether keys use other tiers is not known: the gateway has no counts of keys by tier yet";

const FILE = ["[file]", "left out: TOLLGATE_CONFIG, else config/tollgate.yaml"] as const;

export const configCommand = group("config", "the configuration", [
  () =>
    command("check", "say everything that is wrong with a config file")
      .argument(...FILE)
      .action(async (name: string | undefined, flags: { json?: boolean }) =>
        print(await checked(name), flags),
      ),
  () =>
    command("print", "the settings in force after file, environment and defaults, and where each is from")
      .argument(...FILE)
      .action((name: string | undefined, flags: { json?: boolean }) => print(effective(name), flags)),
  () =>
    command("diff", "what a running gateway would change, and what it must be restarted for")
      .argument(...FILE)
      .option("--admin <url>", "the gateway's admin port; left out: as configured on this machine")
      .option("--defaults", "compare with the defaults instead")
      .action(async (name: string | undefined, flags: DiffFlags) => print(await diff(name, flags), flags)),
]);

async function checked(file: string | undefined): Promise<CommandOutput> {
  const { config, hidden, problems: broken } = checkConfig(file);
  const name = configPath({ env: process.env, file });
  const inUse = config && (await tiersInUse(config, printedName(name)));
  const problems = [...broken, ...(inUse?.problems ?? [])];
  const ok = problems.length === 0;
  const words = ok
    ? `${shownPath(name)} is valid.`
    : `${problems.map(printed).join("\n")}\n${numbered(problems.length, "problem", "problems")} in ${shownPath(name)}.`;
  const notChecked = inUse?.notChecked;
  const lines = [words, ...hiddenInWords(hidden)];
  if (notChecked !== undefined) lines.push(`Not checked: ${notChecked}.`);
  return {
    json: {
      ok,
      file: name,
      problems,
      hidden: Object.fromEntries(hidden),
      ...(notChecked !== undefined && { not_checked: notChecked }),
    },
    text: lines.join("\n"),
    ok,
  };
}

/** Reads only, and gives up within seconds. @param file as an operator would type it */
async function tiersInUse(
  { tiers, store }: Config,
  file: string,
): Promise<{ problems: ConfigProblem[]; notChecked?: string }> {
  const place = hostsIn(store.redisUrl);
  try {
    const counts = await onOwnNodes(store, TIERS_TIMEOUT_MS, readTierCounts);
    const { keys: keysByTier } = counts;
    const problems = tierProblems(missingTiers(keysByTier, tiers), { keysByTier, tiers, file });
    const gaps = gapsInWords(counts);
    return gaps === undefined ? { problems } : { problems, notChecked: gaps };
  } catch (error) {
    const notChecked = `whether keys use other tiers is not known: Redis at ${place} cannot be asked (${storeReason(error).why})`;
    return { problems: [], notChecked };
  }
}

/** As a gateway that starts in this environment has them. @throws ConfigError with all problems of the file */
function effective(file: string | undefined): CommandOutput {
  const loaded = requireLoaded(readConfig({ env: process.env, file }));
  const settings = [...settingLeaves(redactSettings(loaded.settings))].map(([setting, value]) => ({
    ...{ setting, value: redactSetting(setting, value) },
    ...originOf(loaded, setting),
  }));
  const isSet = (name: string) => variable(loaded.source.env, name) !== undefined;
  const secrets = Object.fromEntries(SECRET_VARIABLES.map((name) => [name, isSet(name) ? "set" : "unset"]));
  const name = printedName(loaded.source.file);
  const rows = settings.map((one) => [
    one.setting,
    JSON.stringify(one.value) ?? "",
    originInWords(one, name),
  ]);
  const ofSecrets = Object.entries(secrets).map(([variable, state]) => [variable, state, "environment"]);
  return {
    json: { file: loaded.source.file, settings, secrets, hidden: Object.fromEntries(loaded.hidden) },
    text: [
      table(["SETTING", "VALUE", "FROM"], [...rows, ...ofSecrets], { gives: ["VALUE"] }),
      ...hiddenInWords(loaded.hidden),
    ].join("\n"),
  };
}

function originInWords(one: ReturnType<typeof originOf>, file: string): string {
  if (one.from === "environment") return one.variable;
  if (one.from === "file") return one.line === undefined ? file : `${file}:${one.line}`;
  return "default";
}

export function checkConfig(file?: string) {
  const { loaded, problems } = readConfig({ env: process.env, file });
  return {
    config: loaded?.config,
    hidden: loaded?.hidden ?? new Map<string, string>(),
    problems,
    text: problems.map(printed).join("\n"),
  };
}

interface DiffFlags {
  json?: boolean;
  admin?: string;
  defaults?: boolean;
}

interface Base {
  name: string;
  heading: string;
  written: Written;
  keysByTier: Readonly<Record<string, number>>;
  /** Gaps in the gateway's counts, in words. */
  notChecked?: string | undefined;
  /** Settings that the gateway's environment decides, whatever the file says. */
  fromEnvironment: Readonly<Record<string, string>>;
}

async function diff(file: string | undefined, flags: DiffFlags): Promise<CommandOutput> {
  const name = configPath({ env: process.env, file });
  // This machine's environment is not the gateway's: only the files count.
  const { settings, config } = requireLoaded(readConfig({ env: {}, file: name, isForAnother: true }));
  const base = flags.defaults ? defaults() : await running(flags.admin ?? ownAdminUrl());
  // A running gateway does not tell the path of its upstream, so paths are not compared.
  const from = { ...base.written, settings: redactSettings(base.written.settings) };
  const found = differences(from, {
    settings: redactSettings(settings),
    prices: writtenPrices(config.priceLists),
  }).filter(
    // Which price file it is does not matter: its prices are compared.
    ({ setting }) => base.fromEnvironment[setting] === undefined && setting !== "prices",
  );
  // A gateway that starts takes any price; a running one takes no slip.
  const slips =
    flags.defaults || !isSingleTable(base.written.prices)
      ? []
      : unconfirmedPriceChanges(base.written.prices, listInForce(config).table, config.confirmedPrices);
  const { missing, dropped, notNamed } = tiersOf(base, config.tiers, printedName(name));
  const prices = priceProblems(slips, {
    confirmed: config.confirmedPrices,
    file: printedName(name),
    pricesFile: printedName(listInForce(config).file),
  });
  const refused = [...prices, ...dropped].map(printed);
  const isSlip = (setting: string): boolean => slips.some(({ price }) => price === setting);
  return {
    json: {
      file: name,
      against: base.name,
      differences: found.map(({ setting, from, to, needsRestart }) => ({
        setting,
        from,
        to,
        needs_restart: needsRestart,
        ...(isSlip(setting) && { needs_confirmation: true }),
      })),
      from_environment: base.fromEnvironment,
      tiers_in_use: missing.map(({ tier, keys }) => ({ tier, keys })),
      refused,
      not_checked: base.notChecked,
    },
    text: [
      `${shownPath(name)}, compared with ${base.name}:`,
      "",
      ...inLines(found, base, isSlip),
      ...(refused.length === 0 ? [] : ["", "The running gateway would refuse this file:", ...refused]),
      ...notNamed.map((problem) => `\n${printed(problem)}`),
      ...decided(base),
      ...(base.notChecked === undefined ? [] : ["", `Not checked: ${base.notChecked}.`]),
    ].join("\n"),
    ok: refused.length === 0,
  };
}

/** Tiers in use that the file lacks: those that the base would refuse to drop, and those that it does not name either. */
function tiersOf({ keysByTier, written }: Base, tiers: Config["tiers"], file: string) {
  const missing = missingTiers(keysByTier, tiers);
  const dropped = droppedTiers(missing, written.settings.tiers);
  const others = missing.filter((one) => !dropped.includes(one));
  const asProblems = (some: typeof missing) => tierProblems(some, { keysByTier, tiers, file });
  return { missing, dropped: asProblems(dropped), notNamed: asProblems(others) };
}

function inLines(
  found: readonly Difference[],
  { heading }: Base,
  isSlip: (setting: string) => boolean,
): string[] {
  if (found.length === 0) return ["No difference."];
  const rows = found.map(({ setting, from, to, needsRestart }) => [
    setting,
    JSON.stringify(from),
    JSON.stringify(to),
    needsRestart ? "needs a restart" : isSlip(setting) ? "is refused: see below" : "",
  ]);
  return [table(["SETTING", heading, "FILE", ""], rows)];
}

function decided({ fromEnvironment }: Base): string[] {
  const names = Object.entries(fromEnvironment).map(([setting, variable]) => `${setting} (${variable})`);
  return names.length === 0 ? [] : ["", `Decided by the gateway's environment: ${names.join(", ")}.`];
}

function defaults(): Base {
  const { settings, config } = defaultConfig();
  return {
    name: "the defaults",
    heading: "DEFAULT",
    written: { settings, prices: writtenPrices(config.priceLists) },
    keysByTier: {},
    fromEnvironment: {},
  };
}

function ownAdminUrl(): string {
  const { loaded } = readConfig({ env: process.env });
  if (loaded === undefined)
    throw new OperatorError("this machine's configuration is not valid; give --admin URL");
  return adminUrl(loaded.config.admin);
}

export function adminUrl({ host, port, tls }: Config["admin"]): string {
  const reachable = host === "0.0.0.0" ? "127.0.0.1" : host === "::" ? "::1" : host;
  return `${tls ? "https" : "http"}://${reachable.includes(":") ? `[${reachable}]` : reachable}:${port}`;
}

interface RunningConfig extends Written {
  from_environment: Readonly<Record<string, string>>;
  keys_by_tier: TierCounts["keys"] | null;
  unread_partitions: number | null;
}

function runningBase(name: string, config: RunningConfig): Base {
  const { settings, prices, from_environment, keys_by_tier: keys } = config;
  const unread = config.unread_partitions ?? 0;
  return {
    name,
    heading: "RUNNING",
    written: { settings, prices },
    keysByTier: keys ?? {},
    notChecked: keys ? gapsInWords({ keys, unread }) : UNKNOWN_COUNTS,
    fromEnvironment: from_environment,
  };
}

async function running(admin: string): Promise<Base> {
  try {
    const token = variable(process.env, "ADMIN_TOKEN");
    const response = await fetch(new URL("/config", admin), {
      headers: token === undefined ? {} : { Authorization: `Bearer ${token}` },
      signal: AbortSignal.timeout(ADMIN_TIMEOUT_MS),
    });
    if (response.status === 401) {
      throw new OperatorError(
        `the gateway at ${admin} wants its ADMIN_TOKEN: set it in this command's environment`,
      );
    }
    if (!response.ok) throw new Error(`HTTP ${response.status}: ${(await response.text()).trim()}`);
    return runningBase(`the gateway at ${admin}`, JSON.parse(await response.text()));
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    const { message, cause } = error as Error & { cause?: NodeJS.ErrnoException };
    const why = cause?.code ?? cause?.message ?? message;
    throw new OperatorError(
      `no gateway answers at ${admin}/config (${why}); name its admin port with --admin URL, or compare with --defaults`,
    );
  }
}

function originOf({ origins, linesInFile }: Loaded, setting: string) {
  const variable = origins.get(setting);
  if (variable !== undefined) return { from: "environment", variable } as const;
  if (linesInFile.has(setting)) return { from: "file", line: linesInFile.get(setting) } as const;
  return { from: "default" } as const;
}
