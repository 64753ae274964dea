import { partitionOf } from "../../src/records/names.ts";
import { issueKeys } from "../keys.ts";
import { partitions, partitionTag, record, type Template } from "../recorder.ts";
import { GENERATION, generateOne, generationInit } from "../requests.ts";
import type { Tree } from "../tree.ts";
import type { World } from "../world.ts";
import { startGateway } from "./gateway.ts";

/** ADMIT and BIND, each as a call of its own. */
export interface Calls {
  admit: Template;
  bind: Template;
}

/**
 * Commands that a tree's gateway sends to Redis for one generation, as templates: so that a peer runs the same scripts on the same
 * keys, whatever their encoding is.
 */
export async function recordCalls(world: World, tree: Tree): Promise<Calls> {
  const [key] = await issueKeys(tree, world.redis, 1);
  const { keyId, accountId } = key!;
  const gateway = await startGateway(world, tree);
  try {
    // The first teaches Redis the scripts.
    await generateOne(gateway.url, key!.key);
    const sent = await record(world, async () => {
      const response = await fetch(gateway.url + GENERATION.path, generationInit(key!.key));
      const request = response.headers.get("x-request-id") ?? "";
      const { data } = (await response.json()) as { data: { task_id: string } };
      const tag = partitionTag(partitionOf(accountId, await partitions(world)));
      return { names: { task: data.task_id, request, key: keyId, account: accountId }, tag };
    });
    const calls = sent.filter(({ words }) => /^evalsha$/i.test(words[0] ?? "") && mentions(words, "request"));
    const bind = calls.find(({ words }) => mentions(words, "task"));
    const admit = calls.find((call) => call !== bind);
    if (!admit || !bind) {
      throw new Error(`the gateway sent ${calls.length} calls for a generation, not ADMIT and BIND`);
    }
    return { admit, bind };
  } finally {
    await gateway.stop();
  }
}

const mentions = (words: readonly string[], name: string): boolean =>
  words.some((word) => word.includes(`{${name}}`));
