import { createHash, randomBytes } from "node:crypto";
import { type KeyRef, keyRef, partitionOf } from "../src/records/names.ts";
import { GENEROUS } from "./keys.ts";
import { partitions, partitionTag, record, type Template } from "./recorder.ts";
import type { Tree } from "./tree.ts";
import type { World } from "./world.ts";

/** Keys written in one pipeline. */
const BATCH = 1000;

/**
 * Makes very many keys, each of its own account, with the commands that the tree itself sends for one.
 * @returns how the n-th of them is found
 */
export async function makeKeys(world: World, tree: Tree, count: number): Promise<(n: number) => KeyRef> {
  const commands = (await recordIssue(world, tree)).map(compile);
  const parts = await partitions(world);
  const run = randomBytes(4).toString("hex");
  // As long as real ids are.
  const idsOf = (n: number) => {
    const serial = `${run}${String(n).padStart(10, "0")}`;
    const [key, account] = [`key_${serial}`, `acc_${serial}`];
    return { key, account, partition: partitionOf(account, parts) };
  };
  for (let from = 0; from < count; from += BATCH) {
    const pipe = world.redis.pipeline();
    for (let n = from; n < Math.min(from + BATCH, count); n++) {
      const { key, account, partition } = idsOf(n);
      const digest = createHash("sha256").update(key).digest("hex");
      const names: Record<string, string> = { key, account, digest, tag: partitionTag(partition) };
      for (const command of commands) {
        const [name = "", ...rest] = command(names);
        pipe.call(name, ...rest);
      }
    }
    for (const [error] of (await pipe.exec()) ?? []) if (error) throw error;
  }
  return (n) => {
    const { key, account, partition } = idsOf(n);
    return keyRef(key, account, partition);
  };
}

/** A template as a function of its names; words without any are not looked at again. */
function compile({ words }: Template): (names: Record<string, string>) => string[] {
  const parts = words.map((word) => word.split(/\{(\w+)\}/));
  return (names) =>
    parts.map((pieces) =>
      pieces.length === 1 ? pieces[0]! : pieces.map((piece, at) => (at % 2 ? names[piece] : piece)).join(""),
    );
}

/** The commands that change something when one key is issued. */
async function recordIssue(world: World, tree: Tree): Promise<Template[]> {
  const options = { credits: 1_000_000_000, limits: GENEROUS };
  // The first teaches Redis the script, and fixes the partitions.
  await tree.issueKey(world.redis, options);
  const sent = await record(world, async () => {
    const { key, keyId, accountId } = await tree.issueKey(world.redis, options);
    const digest = createHash("sha256").update(key).digest("hex");
    const tag = partitionTag(partitionOf(accountId, await partitions(world)));
    return { names: { key: keyId, account: accountId, digest }, tag };
  });
  return sent.filter(({ words }) => words.some((word) => word.includes("{key}")));
}
