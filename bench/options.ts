import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { PROFILES } from "./profile.ts";
import type { Scenario } from "./scenario.ts";
import { SCENARIOS } from "./scenarios/index.ts";
import { yardstickTree } from "./yardstick.ts";

const HELP = `npm run bench -- [options]

  --full           everything, about an hour; writes docs/performance.md
  --only A,B       only these scenarios
  --profile LOAD   no figures, but where the gateway's time goes: generation, refusal, poll or upload
  --tree DIR       measure the gateway of another checkout; more than once: beside each other
  --yardstick      beside a fixed earlier commit, whose scripts nginx + Lua runs
  --rounds N       rounds of each comparison (3)
  --seconds N      length of a measured interval (quick: 3, full: 5)
  --warm-up N      seconds of load before each interval (quick: 4, full: 24): Node compiles what is hot meanwhile
  --first          on a machine that others use too: go before their programs (as root)
`;

export interface Options {
  full: boolean;
  /** The load whose profile is wanted instead of figures. */
  profile: string | undefined;
  first: boolean;
  /** Whether a scenario is part of this run. */
  wants(name: string, scenario: Scenario): boolean;
  /** Folders of the source trees that are measured. */
  trees: string[];
  rounds: number;
  seconds: number;
  warmUpSeconds: number;
}

/** Reads the command line; says how it is used and ends the process where it makes no sense. */
export function readOptions(args: string[]): Options {
  try {
    const { values } = parseArgs({
      args,
      options: {
        full: { type: "boolean", default: false },
        only: { type: "string" },
        tree: { type: "string", multiple: true },
        yardstick: { type: "boolean", default: false },
        rounds: { type: "string", default: "3" },
        seconds: { type: "string" },
        "warm-up": { type: "string" },
        profile: { type: "string" },
        first: { type: "boolean", default: false },
        help: { type: "boolean", default: false },
      },
    });
    if (values.help) throw new Error("");
    const { full, only, first, profile } = values;
    if (profile !== undefined && !PROFILES.includes(profile)) throw new Error(`no load ${profile}`);
    if (first && process.getuid?.() !== 0) throw new Error("--first needs root");
    const names = only?.split(",");
    const unknown = names?.find((name) => !(name in SCENARIOS));
    if (unknown !== undefined)
      throw new Error(`no scenario ${unknown}; there are ${Object.keys(SCENARIOS).join(", ")}`);
    return {
      full,
      profile,
      first,
      wants: (name, scenario) => names?.includes(name) ?? (full || scenario.quick),
      // nginx runs the scripts of the first one.
      trees: [
        ...(values.yardstick ? [yardstickTree()] : []),
        ...(values.tree ?? [resolve(import.meta.dirname, "..")]),
      ],
      rounds: count(values.rounds),
      seconds: count(values.seconds ?? (full ? "5" : "3")),
      warmUpSeconds: count(values["warm-up"] ?? (full ? "24" : "4")),
    };
  } catch (error) {
    const { message } = error as Error;
    process.stderr.write(message ? `${message}\n\n${HELP}` : HELP);
    process.exit(message ? 1 : 0);
  }
}

function count(text: string): number {
  const number = Number(text);
  if (!Number.isInteger(number) || number < 1) throw new Error(`not a number of rounds or seconds: ${text}`);
  return number;
}
