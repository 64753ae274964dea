import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { formatVerdict } from "./checker.ts";
import { PARTS, runPart } from "./run.ts";
import { bundleSources, copySources } from "./tree.ts";
import { ROOT, stopWorlds } from "./world.ts";

/** Longer than a test may be, or dependent on how fast the machine is: `npm run test:fault` runs these. */
const CAMPAIGN_ONLY = new Set([
  "late-binds",
  "stores",
  "overload",
  "disks",
  "task-ends",
  "webhooks",
  "callbacks",
  "callback-slots",
  "webhook-loads",
  "crash-cluster",
  "kills-cluster",
]);
const LONGEST = new Set(["look-ups", "crash", "upstream", "archive", "controls"]);
/** `TOLLGATE_FAULT_SEED` replays a schedule. */
const seed = Number(process.env.TOLLGATE_FAULT_SEED ?? Math.floor(Math.random() * 2 ** 31));
const folder = await mkdtemp(join(tmpdir(), "tollgate-fault-"));
const root = copySources(ROOT, join(folder, "tree"));
await bundleSources(root);

afterAll(stopWorlds);

describe(`nothing is lost, charged twice or leaked under faults (seed ${seed}, histories under ${folder})`, () => {
  const parts = PARTS.filter(({ name, fullOnly }) => !fullOnly && !CAMPAIGN_ONLY.has(name));
  // Five run at a time, and nothing is left to run beside the last one.
  const longestFirst = parts.toSorted((a, b) => Number(LONGEST.has(b.name)) - Number(LONGEST.has(a.name)));
  test.concurrent.for(longestFirst)("$name", { timeout: 300_000 }, async (part) => {
    // Of its own: a test that is run once more finds neither files nor journals of the first time.
    const own = await mkdtemp(join(folder, "try-"));
    const outcome = await runPart(part, { seed, folder: own, root, short: true, log: () => undefined });
    expect(outcome.met, formatVerdict(outcome)).toBe(true);
  });
});
