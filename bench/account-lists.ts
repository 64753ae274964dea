import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { rollUp } from "../src/jobs/rollup-work.ts";
import { META } from "../src/records/names.ts";
import { scriptsOf } from "../src/redis/script-runner.ts";
import { startRedis } from "../src/sandbox/redis.ts";
import { accountPages, buildAccounts } from "./lists/accounts.ts";
import { HEADER, logCommands, measure, PARTITIONS } from "./lists/measure.ts";
import { buildOthers, otherPages } from "./lists/others.ts";
import { startProbe } from "./lists/probe.ts";
import { measureVerify } from "./lists/verify.ts";

// Every list of the management API among many accounts: CPU time of a page in the gateway and in Redis, the longest command of Redis, and
// what another client of Redis waits for; then the comparison of indexes by `ledger verify`. Ends with 1 if a page is beyond 50 ms, or a
// command or a wait beyond 2 ms. `node bench/account-lists.ts [accounts] [list]`

const count = Number(process.argv[2] ?? 1_000_000);
const list = process.argv[3] ?? "";
const dir = await mkdtemp(join(tmpdir(), "tollgate-lists-"));
const server = await startRedis({ dir, persistent: false });
const redis = new Redis(server.url);
const probe = await startProbe(server.url);
const seconds = (fromMs: number): number => Math.round((performance.now() - fromMs) / 1000);
try {
  const startedMs = performance.now();
  await redis.hset(META, { partitions: String(PARTITIONS), id: "bench", layout: "1" });
  await buildAccounts(redis, count);
  const busy = await buildOthers(redis);
  console.log(`${count} accounts in ${seconds(startedMs)} s`);
  const rolledMs = performance.now();
  for (let partition = 0; partition < PARTITIONS; partition++)
    await rollUp(scriptsOf(redis).run, { partition });
  console.log(`rolled up in ${seconds(rolledMs)} s\n${HEADER}`);
  await logCommands(redis);
  let beyond = 0;
  for (const pages of [otherPages(redis, busy), accountPages(redis)])
    for await (const page of pages)
      if (page.name.startsWith(list) && !(await measure(redis, probe, page))) beyond++;
  for (const partition of [busy.partition, (busy.partition + 1) % PARTITIONS])
    if (!(await measureVerify(redis, probe, partition))) beyond++;
  console.log(`${beyond} beyond the bounds`);
  process.exitCode = beyond > 0 ? 1 : 0;
} finally {
  await probe.stop();
  redis.disconnect();
  await server.stop();
  await rm(dir, { recursive: true, force: true });
}
