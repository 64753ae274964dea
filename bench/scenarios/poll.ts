import { readMetrics } from "../metrics.ts";
import { generateOne } from "../requests.ts";
import type { Outcome, Scenario } from "../scenario.ts";
import { gatewaySubject } from "../subjects/gateway.ts";
import type { Subject } from "../subjects/subject.ts";
import { judge } from "../targets.ts";
import type { Tree } from "../tree.ts";
import { compare, disturbances, type Entry, ratioOf, requireAnswers, tableOf } from "./compare.ts";
import { generationEntry } from "./generation.ts";

/** Few, so that the one poll in five seconds that goes upstream for each task does not count. */
const TASKS = 100;
const CACHED_SHARE_MIN = 0.98;

/** Polls of tasks that were seen less than five seconds ago. */
export const pollEntry = (tree: Tree, subject: Subject = gatewaySubject(tree)): Entry => ({
  label: `${tree.name}, poll`,
  subject,
  tree,
  keys: TASKS,
  targets: (keys, { url }) =>
    Promise.all(
      keys.map(async ({ key }) => ({
        method: "GET" as const,
        path: `/api/v1/tasks/${await generateOne(url, key)}`,
        token: key,
      })),
    ),
  async check(interval, { adminUrl }) {
    requireAnswers(interval, "success");
    const metric = await readMetrics(adminUrl!);
    const cached = metric("tollgate_requests_total", 'outcome="cached"');
    const share = cached / metric("tollgate_requests_total");
    if (share < CACHED_SHARE_MIN) throw new Error(`only ${share} of the polls were answered from the cache`);
  },
});

export const poll: Scenario = {
  title: "Poll answered from the cache",
  quick: true,
  needs: ["taskset", "wrk", "nginx"],
  targets: ["poll"],
  async run(context): Promise<Outcome> {
    const { trees } = context;
    const entries = trees.flatMap((tree) => [generationEntry(gatewaySubject(tree), tree), pollEntry(tree)]);
    const intervals = await compare(context, entries);
    const [{ name }] = trees as [Tree];
    const ratio = ratioOf(intervals, [`${name}, poll`, name]);
    return {
      method: `64 connections poll ${TASKS} tasks that run; each goes upstream once in five seconds, all else is answered from Redis.`,
      tables: [tableOf(intervals)],
      verdicts: [judge("poll", ratio)],
      disturbed: disturbances(intervals),
      figures: Object.fromEntries(intervals),
    };
  },
};
