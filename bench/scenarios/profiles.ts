import { type Profile, percent, takeProfile } from "../profile.ts";
import type { Context, Outcome, Scenario, Table } from "../scenario.ts";
import { short } from "../targets.ts";

/** Loads whose targets are far: the page says where their time goes. */
const LOADS = ["generation", "upload"];
const GROUPS_SHOWN = 16;
const FUNCTIONS_SHOWN = 12;
const COMMANDS_SHOWN = 14;

export const profiles: Scenario = {
  title: "Where the time goes",
  quick: false,
  needs: ["taskset", "wrk", "nginx"],
  targets: [],
  async run(context: Context): Promise<Outcome> {
    const taken: [string, Profile][] = [];
    for (const load of LOADS) taken.push([load, await takeProfile(context, load)]);
    return {
      method:
        "Self time of the gateway under saturation, by V8's profiler, as shares of all time that was not idle: by folder, package or part of Node, then by function. Of Redis its own statistics: a script's commands are counted beside the script, whose time holds theirs.",
      tables: taken.flatMap(([load, profile]) => tablesOf(load, profile)),
      verdicts: [],
      disturbed: [],
      figures: Object.fromEntries(taken.map(([load, { file: _, ...shares }]) => [load, shares])),
    };
  },
};

function tablesOf(load: string, { groups, functions, redis }: Profile): Table[] {
  const shares = (title: string, of: Profile["groups"], most: number): Table => ({
    columns: [`${load}: ${title}`, "% of the time"],
    rows: of.slice(0, most).map(([label, share]) => [label, percent(share)]),
  });
  const tables = [
    shares("by group", groups, GROUPS_SHOWN),
    shares("by function", functions, FUNCTIONS_SHOWN),
  ];
  if (load !== "generation") return tables;
  const commands = redis.slice(0, COMMANDS_SHOWN);
  const rows = commands.map(({ command, calls, us }) => [command, short(calls), short(us)]);
  return [...tables, { columns: [`${load}: Redis by command`, "calls per request", "us per request"], rows }];
}
