import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { formatVerdict } from "../fault/checker.ts";
import { bundleSources, copySources } from "../fault/tree.ts";
import { ROOT } from "../fault/world.ts";
import type { Topology } from "./driver.ts";
import { runRounds, stopRounds } from "./rounds.ts";
import type { Fault } from "./strikes.ts";

// One round; cluster-gateway.test.ts has a cluster. `npm run test:failover` makes many, with all faults.

const folder = await mkdtemp(join(tmpdir(), "tollgate-failover-"));
const root = copySources(ROOT, join(folder, "tree"));
await bundleSources(root);

afterAll(stopRounds);

/** Criteria that a busy machine or a single round may decide. */
const OF_MANY_ROUNDS = /^every key is served again|^operators' commands/;

test.concurrent.for<[Topology, Fault, killed: number[]]>([["trio", "lag, kill", [0]]])(
  "%s, %s: nothing that was answered is lost, charged twice or leaked",
  async ([topology, fault, killed]) => {
    const outcome = await runRounds({
      scenario: `failover ${topology}`,
      seed: 1,
      folder: join(folder, topology),
      root,
      progress: () => undefined,
      topology,
      rounds: [{ fault, partition: 5, killed, beforeMs: 800, afterMs: 500, awayMs: 0 }],
    });
    const unmet = outcome.verdict.criteria.filter(({ met, name }) => !met && !OF_MANY_ROUNDS.test(name));
    expect(unmet, formatVerdict(outcome.verdict)).toEqual([]);
  },
);
