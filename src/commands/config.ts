import { Command } from "commander";
import { type Config, configPath, defaultConfig, readConfig, requireLoaded } from "../config/config.ts";
import { type Difference, differences, type Written } from "../config/differences.ts";
import { variable } from "../config/environment.ts";
import { priceChangeInWords, unconfirmedPriceChanges } from "../config/price-changes.ts";
import { printed } from "../config/problems.ts";
import { redactSettings } from "../config/redact.ts";
import { missingTiers, tierProblems } from "../config/tiers-in-use.ts";
import { printedName } from "../config/yaml-file.ts";
import { OperatorError } from "../store/operator-error.ts";
import { command } from "./options.ts";
import { type CommandOutput, print, shownPath } from "./output.ts";
import { table } from "./terminal.ts";
import { tiersInUse } from "./tiers-in-use.ts";

const ADMIN_TIMEOUT_MS = 3000;

/** `tollgate config ...` */
export function configCommand(): Command {
  const file = ["[file]", "left out: TOLLGATE_CONFIG, else config/tollgate.yaml"] as const;
  return new Command("config")
    .description("the configuration")
    .addCommand(
      command("check", "say everything that is wrong with a config file")
        .argument(...file)
        .action(async (name: string | undefined, flags: { json?: boolean }) =>
          print(await checked(name), flags),
        ),
    )
    .addCommand(
      command("diff", "what a running gateway would change, and what it must be restarted for")
        .argument(...file)
        .option("--admin <url>", "the gateway's admin port; left out: as configured on this machine")
        .option("--defaults", "compare with the defaults instead")
        .action(async (name: string | undefined, flags: DiffFlags) => print(await diff(name, flags), flags)),
    );
}

async function checked(file: string | undefined): Promise<CommandOutput> {
  const { config, problems: broken } = checkConfig(file);
  const name = configPath({ env: process.env, file });
  const inUse = config && (await tiersInUse(config, printedName(name)));
  const problems = [...broken, ...(inUse?.problems ?? [])];
  const ok = problems.length === 0;
  const words = ok
    ? `${shownPath(name)} is valid.`
    : `${problems.map(printed).join("\n")}\n${problems.length} problems in ${shownPath(name)}.`;
  const notChecked = inUse?.notChecked;
  const text = notChecked === undefined ? words : `${words}\nNot checked: ${notChecked}.`;
  return {
    json: { ok, file: name, problems, ...(notChecked !== undefined && { not_checked: notChecked }) },
    text,
    ok,
  };
}

/** What a config file and the environment come to, or all their problems, and these as text. */
export function checkConfig(file?: string) {
  const { loaded, problems } = readConfig({ env: process.env, file });
  return { config: loaded?.config, problems, text: problems.map(printed).join("\n") };
}

interface DiffFlags {
  json?: boolean;
  admin?: string;
  defaults?: boolean;
}

/** What is compared with the file. */
interface Base {
  name: string;
  heading: string;
  written: Written;
  /** How many keys use each tier, as far as the gateway knows. */
  keysByTier: Readonly<Record<string, number>>;
  /** Settings that the gateway's environment decides, whatever the file says. */
  fromEnvironment: Readonly<Record<string, string>>;
}

async function diff(file: string | undefined, flags: DiffFlags): Promise<CommandOutput> {
  const name = configPath({ env: process.env, file });
  // This machine's environment is not the gateway's: only the files count.
  const { settings, config } = requireLoaded(readConfig({ env: {}, file: name }));
  const base = flags.defaults ? defaults() : await running(flags.admin ?? ownAdminUrl());
  // A running gateway does not tell the path of its upstream, so paths are not compared.
  const from = { ...base.written, settings: redactSettings(base.written.settings) };
  const found = differences(from, { settings: redactSettings(settings), prices: config.prices }).filter(
    // Which price file it is does not matter: its prices are compared.
    ({ setting }) => base.fromEnvironment[setting] === undefined && setting !== "prices",
  );
  // A gateway that starts takes any price; a running one takes no slip.
  const slips = flags.defaults
    ? []
    : unconfirmedPriceChanges(base.written.prices, config.prices, config.confirmedPrices);
  const { tiers } = config;
  const missing = missingTiers(base.keysByTier, tiers);
  const dropped = tierProblems(missing, { keysByTier: base.keysByTier, tiers, file: printedName(name) });
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
    },
    text: [
      `${shownPath(name)}, compared with ${base.name}:`,
      "",
      ...inLines(found, base, isSlip),
      ...slips.map((slip) => `\n${slip.price} ${priceChangeInWords(slip)}`),
      ...dropped.map((problem) => `\n${printed(problem)}`),
      ...decided(base),
    ].join("\n"),
  };
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
    written: { settings, prices: config.prices },
    keysByTier: {},
    fromEnvironment: {},
  };
}

/** The admin port of the gateway with this machine's configuration. */
function ownAdminUrl(): string {
  const { loaded } = readConfig({ env: process.env });
  if (loaded === undefined)
    throw new OperatorError("this machine's configuration is not valid; give --admin URL");
  return adminUrl(loaded.config.admin);
}

/** The URL at which this machine reaches an admin port. */
export function adminUrl({ host, port, tls }: Config["admin"]): string {
  const reachable = host === "0.0.0.0" ? "127.0.0.1" : host === "::" ? "::1" : host;
  return `${tls ? "https" : "http"}://${reachable.includes(":") ? `[${reachable}]` : reachable}:${port}`;
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
    const { settings, prices, from_environment, keys_by_tier } = JSON.parse(await response.text());
    const name = `the gateway at ${admin}`;
    const written = { settings, prices };
    const keysByTier = keys_by_tier ?? {};
    return { name, heading: "RUNNING", written, keysByTier, fromEnvironment: from_environment };
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    const { message, cause } = error as Error & { cause?: NodeJS.ErrnoException };
    const why = cause?.code ?? cause?.message ?? message;
    throw new OperatorError(
      `no gateway answers at ${admin}/config (${why}); name its admin port with --admin URL, or compare with --defaults`,
    );
  }
}
