import { parseArgs } from "node:util";
import { PROFILES } from "./profile.ts";
import type { Scenario } from "./scenario.ts";
import { SCENARIOS } from "./scenarios/index.ts";

const HELP = `npm run bench -- [options]

  --full           everything, about an hour
  --page           write docs/performance.md from this run
  --only A,B       only these scenarios
  --profile LOAD   no figures, but where the gateway's time goes: generation, refusal, poll or upload
  --yardstick      beside the gateway of the fixed yardstick, too; --full and --page always do
  --rounds N       slices of each comparison (8)
  --seconds N      length of a slice (quick: 2, full: 3)
  --warm-up N      seconds of load before the first slice (quick: 6, full: 24): Node compiles what is hot meanwhile
  --first          on a machine that others use too: go before their programs (as root)
`;

export interface Options {
  full: boolean;
  /** True to write docs/performance.md. */
  page: boolean;
  /** The load whose profile is wanted instead of figures. */
  profile: string | undefined;
  first: boolean;
  /** True if a scenario is part of this run. */
  wants(name: string, scenario: Scenario): boolean;
  /** True to measure the yardstick, too. */
  yardstick: boolean;
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
        page: { type: "boolean", default: false },
        only: { type: "string" },
        yardstick: { type: "boolean", default: false },
        rounds: { type: "string", default: "8" },
        seconds: { type: "string" },
        "warm-up": { type: "string" },
        profile: { type: "string" },
        first: { type: "boolean", default: false },
        help: { type: "boolean", default: false },
      },
    });
    if (values.help) throw new Error("");
    const { full, page, only, first, profile } = values;
    if (profile !== undefined && !PROFILES.includes(profile)) throw new Error(`no load ${profile}`);
    if (first && process.getuid?.() !== 0) throw new Error("--first needs root");
    const names = only?.split(",");
    const unknown = names?.find((name) => !(name in SCENARIOS));
    if (unknown !== undefined)
      throw new Error(`no scenario ${unknown}; there are ${Object.keys(SCENARIOS).join(", ")}`);
    return {
      full,
      page,
      profile,
      first,
      wants: (name, scenario) => names?.includes(name) ?? (full || scenario.quick),
      yardstick: values.yardstick || full || page,
      rounds: count(values.rounds),
      seconds: count(values.seconds ?? (full ? "3" : "2")),
      warmUpSeconds: count(values["warm-up"] ?? (full ? "24" : "6")),
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
