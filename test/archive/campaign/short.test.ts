import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { copySources } from "../../fault/tree.ts";
import { ROOT } from "../../fault/world.ts";
import { runKills } from "./run.ts";

/** `TOLLGATE_FAULT_SEED` replays a schedule. */
const seed = Number(process.env.TOLLGATE_FAULT_SEED ?? Math.floor(Math.random() * 2 ** 31));

// Guarantee: whatever is killed while the ledger is copied and trimmed, each entry is in the archive or in Redis, once.
test(`no entry is lost or doubled while gateways, PostgreSQL and Redis are killed (seed ${seed})`, {
  timeout: 180_000,
}, async () => {
  const folder = await mkdtemp(join(tmpdir(), "tollgate-archive-kills-"));
  const root = copySources(ROOT, join(folder, "tree"));
  const run = await runKills({ seed, kills: 8, root, folder, progress: () => undefined });
  expect(run.verdict).toMatchObject({ missing: [], doubled: [], wrongFolds: [] });
  expect(run.charged).toBeGreaterThan(0);
  expect(run.left, "entries that have left Redis").toBeGreaterThan(run.charged);
  await rm(folder, { recursive: true });
});
