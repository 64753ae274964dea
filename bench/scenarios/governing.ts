import { setTimeout as delay } from "node:timers/promises";
import { generationInit, generationTarget } from "../requests.ts";
import type { Context, Outcome, Scenario } from "../scenario.ts";
import { recordCalls } from "../subjects/calls.ts";
import { gatewaySubject } from "../subjects/gateway.ts";
import { nginxLuaSubject } from "../subjects/nginx-lua.ts";
import { nodeSubject } from "../subjects/node.ts";
import { portkey, portkeyTarget } from "../subjects/portkey.ts";
import type { RunningSubject } from "../subjects/subject.ts";
import { judge } from "../targets.ts";
import type { Tree } from "../tree.ts";
import { compare, costOf, disturbances, type Entry, ratioOf, requireAnswers, tableOf } from "./compare.ts";
import { generationEntry } from "./generation.ts";

const FORWARDING = "gateway, forwarding only";

/** The gateway's mode for an outage of Redis: keys it knows are let through, and nothing is limited or charged. */
function forwardingEntry(tree: Tree): Entry {
  const store = "fallback_strategy: allow, allow_max_per_key: 0, command_timeout: 500ms";
  const options = { store, name: FORWARDING };
  const entry = generationEntry(gatewaySubject(tree, options), tree);
  return {
    ...entry,
    label: FORWARDING,
    targets: async (keys, running, own) => {
      // Each key is seen once, by which the gateway knows it.
      for (const { key } of keys) await answered(running, key);
      process.kill(own.redisPid, "SIGSTOP");
      await forwarding(running, keys[0]!.key);
      return keys.map(({ key }) => generationTarget(key));
    },
  };
}

async function answered({ url }: RunningSubject, key: string): Promise<Response> {
  const answer = await fetch(`${url}/api/v1/gen2/text-to-video`, generationInit(key));
  await answer.arrayBuffer();
  return answer;
}

/** Until the gateway has noticed that Redis is away: from then on a request waits for nothing. */
async function forwarding(running: RunningSubject, key: string): Promise<void> {
  for (let quick = 0; quick < 20; ) {
    const startedMs = performance.now();
    const { ok } = await answered(running, key);
    quick = ok && performance.now() - startedMs < 50 ? quick + 1 : 0;
    await delay(20);
  }
}

export const governing: Scenario = {
  title: "What governing costs",
  quick: true,
  needs: ["taskset", "wrk", "nginx"],
  targets: ["governed"],
  async run(context: Context): Promise<Outcome> {
    const { trees, world, has } = context;
    const [tree] = trees as [Tree];
    const entries = [generationEntry(gatewaySubject(tree), tree), forwardingEntry(tree)];
    if (has("nginx-lua"))
      entries.push(generationEntry(nginxLuaSubject(tree, await recordCalls(world, tree)), tree));
    if (has("node-peers")) {
      entries.push(generationEntry(nodeSubject("bare undici", "undici.js"), tree));
      entries.push({
        ...generationEntry(portkey, tree),
        targets: (keys) => keys.map(({ key }) => portkeyTarget(world.upstreamUrl, key)),
        check: (interval) => requireAnswers(interval, "success"),
      });
    }
    const intervals = await compare(context, entries);
    return {
      method:
        'The load of "Generation". "Forwarding only" is the gateway while its Redis does not answer, with `store.fallback_strategy: allow`: it authenticates from memory, validates, prices, forwards, logs and counts, and neither limits nor charges. Portkey\'s gateway only forwards; its requests go to /v1/images/generations.',
      tables: [tableOf(intervals)],
      verdicts: [judge("governed", ratioOf(intervals, [tree.name, "nginx + Lua"], costOf))],
      disturbed: disturbances(intervals),
      figures: Object.fromEntries(intervals),
    };
  },
};
