import { issueKeys } from "../keys.ts";
import { GENERATION, generationInit } from "../requests.ts";
import type { Tree } from "../tree.ts";
import type { World } from "../world.ts";
import { startGateway } from "./gateway.ts";

/** One EVALSHA as the gateway sends it; in its words, what changes from call to call is a `{name}`. */
export interface Call {
  words: string[];
}

/** ADMIT and BIND, each as a call of its own. */
export interface Calls {
  admit: Call;
  bind: Call;
}

const NEAR_MS = 60_000;

/**
 * What a tree's gateway sends to Redis for one generation, seen by MONITOR and turned into templates: so that a peer runs
 * the same scripts on the same keys, whatever their encoding is.
 */
export async function recordCalls(world: World, tree: Tree): Promise<Calls> {
  const [key] = await issueKeys(tree, world.redis, 1);
  const gateway = await startGateway(world, tree);
  const monitor = await world.redis.monitor();
  try {
    // The first teaches Redis the scripts.
    await fetch(gateway.url + GENERATION.path, generationInit(key!.key));
    const sent: string[][] = [];
    monitor.on("monitor", (_time: string, words: string[], source: string) => {
      if (source !== "lua" && /^evalsha$/i.test(words[0] ?? "")) sent.push(words);
    });
    const response = await fetch(gateway.url + GENERATION.path, generationInit(key!.key));
    const requestId = response.headers.get("x-request-id") ?? "";
    const { data } = (await response.json()) as { data: { task_id: string } };
    await world.redis.ping();
    const partition = tree.partitionOf(key!.accountId, await partitions(world));
    const names: [name: string, value: string][] = [
      ["task", data.task_id],
      ["request", requestId],
      ["key", key!.keyId],
      ["account", key!.accountId],
    ];
    const calls = sent
      .filter((words) => words.some((word) => word.includes(requestId)))
      .map((words) => ({ words: words.map((word) => template(word, names, partitionTag(partition))) }));
    const bind = calls.find(({ words }) => words.some((word) => word.includes("{task}")));
    const admit = calls.find((call) => call !== bind);
    if (!admit || !bind)
      throw new Error(`the gateway sent ${calls.length} calls for a generation, not ADMIT and BIND`);
    return { admit, bind };
  } finally {
    monitor.disconnect();
    await gateway.stop();
  }
}

export const partitionTag = (partition: number): string => `p${String(partition).padStart(2, "0")}`;

export const partitions = async (world: World): Promise<number> =>
  Number(await world.redis.hget("tg:meta", "partitions"));

function template(word: string, names: readonly [string, string][], tag: string): string {
  const number = Number(word);
  if (word !== "" && Math.abs(number - Date.now()) < NEAR_MS) return "{soon}";
  const named = names.reduce((text, [name, value]) => text.replaceAll(value, `{${name}}`), word);
  return named.replaceAll(`{${tag}}`, "{{tag}}");
}
