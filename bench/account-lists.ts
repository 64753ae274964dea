import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { type AccountQuery, listAccounts } from "../src/operations/accounts/account-lists.ts";
import { ACCOUNT_SORTS } from "../src/operations/accounts/account-ranks.ts";
import { accountNames, META, partitionNames, partitionOf, spentName } from "../src/records/names.ts";
import { oneNode } from "../src/redis/nodes.ts";
import { startRedis } from "../src/sandbox/redis.ts";

// GET /accounts among many accounts: every sort and filter at several depths. `node bench/account-lists.ts [accounts]`

const PARTITIONS = 64;
const CHUNK = 2000;
/** Pages in a row, for each query. */
const PAGES = 20;
const LIMIT = 100;
/** Microseconds from which Redis keeps a command. */
const SLOW_US = 200;

const count = Number(process.argv[2] ?? 1_000_000);

const BUILD = `
for at = 1, #ARGV, 4 do
  local id, label, status, balance = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  redis.call("HSET", KEYS[1] .. id, "money", balance .. " 0 10 1 - +",
    "created_at", "1790000000000", "revision", "0", "label", label, "status", status)
  redis.call("ZADD", KEYS[2], 0, id)
  redis.call("ZADD", KEYS[3], 0, string.lower(label) .. " " .. id)
  if status ~= "active" then redis.call("ZADD", KEYS[4], 0, status .. " " .. id) end
  redis.call("ZADD", KEYS[5], balance, id)
  if tonumber(balance) % 3 == 0 then redis.call("ZADD", KEYS[6], balance, id) end
end`;

async function build(redis: Redis): Promise<void> {
  const today = new Date().toISOString().slice(0, 10);
  await redis.hset(META, { partitions: String(PARTITIONS), id: "bench", layout: "1" });
  const chunks = new Map<number, string[]>();
  const write = async (partition: number, args: string[]): Promise<void> => {
    const { accounts, labels, inactive, byBalance } = partitionNames(partition);
    const prefix = accountNames(partition, "").account;
    const keys = [prefix, accounts, labels, inactive, byBalance, spentName(partition, today)];
    await redis.eval(BUILD, keys.length, ...keys, ...args);
  };
  for (let at = 0; at < count; at++) {
    const id = `acc-${String(at).padStart(7, "0")}`;
    const partition = partitionOf(id, PARTITIONS);
    const args = chunks.get(partition) ?? [];
    chunks.set(partition, args);
    const status = at % 1000 === 0 ? "closed" : at % 100 === 0 ? "suspended" : "active";
    args.push(id, `Customer ${at % 5000}`, status, String((at * 7919) % 20_000));
    if (args.length >= CHUNK) await write(partition, args.splice(0));
  }
  for (const [partition, args] of chunks) if (args.length > 0) await write(partition, args);
}

const SORTS = [undefined, ...ACCOUNT_SORTS];
const FILTERS: Partial<AccountQuery>[] = [
  {},
  { prefix: "acc-05" },
  { prefix: "acc-0999999" },
  { label: "customer 49" },
  { label: "nobody" },
  { status: "active" },
  { status: "suspended" },
  { status: "closed" },
  { label: "customer", status: "closed" },
  { prefix: "acc-05", status: "suspended" },
  { balanceBelow: 100 },
  { balanceBelow: 100, status: "closed" },
];

const dir = await mkdtemp(join(tmpdir(), "tollgate-accounts-"));
const server = await startRedis({ dir, persistent: false });
const redis = new Redis(server.url);
try {
  const startedMs = performance.now();
  await build(redis);
  console.log(`${count} accounts in ${Math.round((performance.now() - startedMs) / 1000)} s`);
  await redis.config("SET", "slowlog-log-slower-than", SLOW_US, "slowlog-max-len", 10_000);
  const nodes = oneNode(redis);
  await listAccounts(nodes, { limit: LIMIT });
  for (const sort of SORTS)
    for (const filter of FILTERS) {
      await redis.slowlog("RESET");
      let longestMs = 0;
      let pages = 0;
      let rows = 0;
      for (let cursor: string | undefined; pages < PAGES; ) {
        const pageMs = performance.now();
        const page = await listAccounts(nodes, { ...filter, sort, cursor, limit: LIMIT });
        longestMs = Math.max(longestMs, performance.now() - pageMs);
        pages++;
        rows += page.accounts.length;
        cursor = page.next;
        if (cursor === undefined) break;
      }
      const slow = (await redis.slowlog("GET", 10_000)) as [number, number, number, string[]][];
      const commandMs = Math.max(0, ...slow.map(([, , us]) => us)) / 1000;
      console.log(
        [
          sort ?? "id",
          JSON.stringify(filter),
          `${pages} pages`,
          `${rows} rows`,
          `${longestMs.toFixed(1)} ms`,
          `${commandMs} ms of Redis`,
        ].join("\t"),
      );
    }
} finally {
  redis.disconnect();
  await server.stop();
  await rm(dir, { recursive: true, force: true });
}
