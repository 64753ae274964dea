import { setTimeout as pause } from "node:timers/promises";
import { GENEROUS } from "../keys.ts";
import { readMetrics } from "../metrics.ts";
import { GENERATION, generationInit, generationTarget } from "../requests.ts";
import type { Outcome, Scenario } from "../scenario.ts";
import { recordCalls } from "../subjects/calls.ts";
import { gatewaySubject } from "../subjects/gateway.ts";
import { nginxLuaSubject } from "../subjects/nginx-lua.ts";
import { nodeSubject } from "../subjects/node.ts";
import type { Subject } from "../subjects/subject.ts";
import { judge } from "../targets.ts";
import type { Tree } from "../tree.ts";
import { compare, disturbances, type Entry, ratioOf, requireAnswers, tableOf } from "./compare.ts";
import { each } from "./drive.ts";

const KEYS = 1000;

const WINDOW_MS = 60_000;
/** Longer than a slice, in which no key may have a request left again. */
const SLICE_MS = 10_000;

/** Keys of one request per minute, used up before a slice that the minute would end in: every answer to it is a refusal. */
export function refusalEntry(subject: Subject, tree: Tree): Entry {
  let admitted = 0;
  let usedUpMs = Number.NEGATIVE_INFINITY;
  let useUp = async (): Promise<void> => undefined;
  return {
    label: subject.name,
    subject,
    tree,
    keys: KEYS,
    limits: { ...GENEROUS, rate_limit: 1 },
    async targets(keys, { url }) {
      useUp = () =>
        each(keys, async ({ key }) => {
          const response = await fetch(url + GENERATION.path, generationInit(key));
          await response.arrayBuffer();
          if (response.ok) admitted++;
        });
      await useUp();
      usedUpMs = performance.now();
      return keys.map(({ key }) => generationTarget(key));
    },
    async before() {
      const leftMs = usedUpMs + WINDOW_MS - performance.now();
      if (leftMs > SLICE_MS) return;
      await pause(leftMs);
      await useUp();
      usedUpMs = performance.now();
    },
    async check(interval, running) {
      requireAnswers(interval, "refusal");
      if (running.adminUrl === undefined) return;
      const metric = await readMetrics(running.adminUrl);
      const refused = metric("tollgate_requests_total", 'outcome="rate_limited"');
      const all = metric("tollgate_requests_total");
      if (refused < interval.load.requests || all - refused !== admitted)
        throw new Error(
          `of ${all} requests ${refused} were refused for the rate; all but the ${admitted} that used keys up should be`,
        );
    },
  };
}

export const refusal: Scenario = {
  title: "Refused request (2001)",
  quick: true,
  needs: ["taskset", "wrk", "nginx"],
  targets: ["refusal"],
  async run(context): Promise<Outcome> {
    const { world, trees, full, has } = context;
    const [tree] = trees as [Tree];
    const entries = trees.map((one) => refusalEntry(gatewaySubject(one), one));
    const add = (subject: Subject): void => void entries.push(refusalEntry(subject, tree));
    if (has("nginx-lua")) add(nginxLuaSubject(tree, await recordCalls(world, tree)));
    if (has("node-peers") && full) {
      add(nodeSubject("fastify stack", "fastify.js", { limit: 1 }));
      add(nodeSubject("express stack", "express.js", { limit: 1 }));
      add(nodeSubject("node:http, nothing but 429", "refuse.js"));
    }
    const intervals = await compare(context, entries);
    return {
      method: "As above, but every key has a limit of one request a minute, used up: every answer is a 429.",
      tables: [tableOf(intervals)],
      verdicts: [judge("refusal", ratioOf(intervals, [tree.name, "nginx + Lua"]))],
      disturbed: disturbances(intervals),
      figures: Object.fromEntries(intervals),
    };
  },
};
