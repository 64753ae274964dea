import { readFileSync } from "node:fs";
import type { Interval } from "../interval.ts";
import { generationTarget } from "../requests.ts";
import type { Context, Outcome, Scenario } from "../scenario.ts";
import { recordCalls } from "../subjects/calls.ts";
import { gatewaySubject } from "../subjects/gateway.ts";
import { nginxLuaSubject } from "../subjects/nginx-lua.ts";
import { nodeSubject } from "../subjects/node.ts";
import { haproxyProxy, nginxProxy } from "../subjects/proxies.ts";
import type { Subject } from "../subjects/subject.ts";
import { judge } from "../targets.ts";
import type { Tree } from "../tree.ts";
import { YARDSTICK } from "../yardstick.ts";
import {
  compare,
  costOf,
  cpuOf,
  disturbances,
  type Entry,
  ratioOf,
  redisOf,
  requireAnswers,
  tableOf,
} from "./compare.ts";

const KEYS = 1000;

/** Generation requests over 1,000 keys, every one admitted. */
export const generationEntry = (subject: Subject, tree: Tree): Entry => ({
  label: subject.name,
  subject,
  tree,
  keys: KEYS,
  targets: (keys) => keys.map(({ key }) => generationTarget(key)),
  check(interval, { logFile }) {
    requireAnswers(interval, "success");
    if (logFile !== undefined) requireLog(logFile, interval.load.requests);
  },
});

/** A gateway that is measured writes its log: a line for each request. */
function requireLog(file: string, atLeast: number): void {
  const newline = 10;
  const lines = readFileSync(file).reduce((sum, byte) => sum + Number(byte === newline), 0);
  if (lines < atLeast) throw new Error(`only ${lines} lines of log for ${atLeast} requests`);
}

export const generation: Scenario = {
  title: "Generation",
  quick: true,
  needs: ["taskset", "wrk", "nginx"],
  targets: [
    "costByNginx",
    "cpuByFastify",
    "gatewayByYardstick",
    "redisByYardstick",
    "costByYardstick",
    "servedByYardstick",
  ],
  async run(context: Context): Promise<Outcome> {
    const entries = await entriesOf(context);
    const intervals = await compare(context, entries);
    const [{ label: ours } = { label: "" }] = entries;
    const beside = (label: string, figure = cpuOf) => ratioOf(intervals, [ours, label], figure);
    const served = (interval: Interval): number => interval.requestsPerSecond;
    return {
      method:
        "64 keep-alive connections, 1,000 keys, a POST of 150 bytes, every request admitted, charged and bound to a task of its own.",
      tables: [tableOf(intervals)],
      verdicts: [
        judge("costByNginx", beside("nginx + Lua", costOf)),
        judge("cpuByFastify", beside("fastify stack")),
        judge("gatewayByYardstick", beside(YARDSTICK)),
        judge("redisByYardstick", beside(YARDSTICK, redisOf)),
        judge("costByYardstick", beside(YARDSTICK, costOf)),
        judge("servedByYardstick", beside(YARDSTICK, served)),
      ],
      disturbed: disturbances(intervals),
      figures: Object.fromEntries(intervals),
    };
  },
};

async function entriesOf({ world, trees, full, has }: Context): Promise<Entry[]> {
  const [tree] = trees as [Tree];
  const entries = trees.map((each) => generationEntry(gatewaySubject(each), each));
  const add = (subject: Subject): void => void entries.push(generationEntry(subject, tree));
  if (has("nginx-lua")) {
    const calls = await recordCalls(world, tree);
    add(nginxLuaSubject(tree, calls));
    if (full) add(nginxLuaSubject(tree, calls, true));
  }
  if (has("node-peers")) {
    add(nodeSubject("bare undici", "undici.js"));
    add(nodeSubject("fastify stack", "fastify.js"));
    if (full) {
      add(nodeSubject("express stack", "express.js"));
      add(nodeSubject("http-proxy-3 alone", "http-proxy-3.js"));
    }
  }
  if (full) add(nginxProxy);
  if (full && has("haproxy")) add(haproxyProxy);
  return entries;
}
