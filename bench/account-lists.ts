import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { META } from "../src/records/names.ts";
import { startRedis } from "../src/sandbox/redis.ts";
import { accountPages, buildAccounts } from "./lists/accounts.ts";
import { HEADER, logCommands, measure, PARTITIONS } from "./lists/measure.ts";
import { buildOthers, otherPages } from "./lists/others.ts";

// Every list of the management API among many accounts: CPU time of a page in the gateway and in Redis, and the longest command of
// Redis. Ends with 1 if one is beyond 50 ms or 2 ms. `node bench/account-lists.ts [accounts] [list]`

const count = Number(process.argv[2] ?? 1_000_000);
const list = process.argv[3] ?? "";
const dir = await mkdtemp(join(tmpdir(), "tollgate-lists-"));
const server = await startRedis({ dir, persistent: false });
const redis = new Redis(server.url);
try {
  const startedMs = performance.now();
  await redis.hset(META, { partitions: String(PARTITIONS), id: "bench", layout: "1" });
  await buildAccounts(redis, count);
  const busy = await buildOthers(redis);
  console.log(`${count} accounts in ${Math.round((performance.now() - startedMs) / 1000)} s\n${HEADER}`);
  await logCommands(redis);
  let beyond = 0;
  for (const pages of [otherPages(redis, busy), accountPages(redis)])
    for await (const page of pages) if (page.name.startsWith(list) && !(await measure(redis, page))) beyond++;
  console.log(`${beyond} beyond the bounds`);
  process.exitCode = beyond > 0 ? 1 : 0;
} finally {
  redis.disconnect();
  await server.stop();
  await rm(dir, { recursive: true, force: true });
}
