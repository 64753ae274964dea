import type { Redis } from "ioredis";
import { type AccountQuery, listAccounts } from "../../src/operations/accounts/account-lists.ts";
import { ACCOUNT_SORTS, isDescending } from "../../src/operations/accounts/account-ranks.ts";
import { cursorOf } from "../../src/records/cursors.ts";
import { accountNames, partitionNames, partitionOf, spentName } from "../../src/records/names.ts";
import { lowerCase, metadataDigest, placesOfAccount } from "../../src/records/words.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { LIMIT, type ListPage, PARTITIONS } from "./measure.ts";

// GET /accounts: every sort with every filter, at the first, the middle and the last page.

const CHUNK = 2000;
const WEEK_DAYS = 7;
const DAY_MS = 86_400_000;

/** KEYS: prefix of records, accounts, labels, inactive, by balance, metadata, spent in a week, days left, words, spent on seven days. */
const BUILD = `
for at = 1, #ARGV, 6 do
  local id, label, status, balance, digest, words = unpack(ARGV, at, at + 5)
  redis.call("HSET", KEYS[1] .. id, "money", balance .. " 0 10 1 - +",
    "created_at", "1790000000000", "revision", "0", "label", label)
  redis.call("ZADD", KEYS[2], 0, id)
  redis.call("ZADD", KEYS[3], 0, string.lower(label) .. " " .. id)
  if status ~= "active" then
    redis.call("HSET", KEYS[1] .. id, "status", status)
    redis.call("ZADD", KEYS[4], 0, status .. " " .. id)
  end
  for word in string.gmatch(words, "[^\\n]+") do redis.call("ZADD", KEYS[9], 0, word) end
  redis.call("ZADD", KEYS[5], balance, id)
  if digest ~= "" then
    redis.call("HSET", KEYS[1] .. id, "metadata", '{"plan":"pro"}')
    redis.call("ZADD", KEYS[6], 0, digest .. " " .. id)
  end
  local spent = tonumber(balance) % 1000 + 1
  redis.call("ZADD", KEYS[7], 7 * spent, id)
  redis.call("ZADD", KEYS[8], math.floor(balance * 1000 / spent), id)
  for day = 10, 16 do redis.call("ZADD", KEYS[day], spent, id) end
end`;

export async function buildAccounts(redis: Redis, count: number): Promise<void> {
  const days = Array.from({ length: WEEK_DAYS }, (_, ago) =>
    new Date(Date.now() - ago * DAY_MS).toISOString().slice(0, 10),
  );
  const pro = metadataDigest("plan", "pro");
  const chunks = new Map<number, string[]>();
  const write = async (partition: number, args: string[]): Promise<void> => {
    const { accounts, labels, inactive, byBalance, metadata, spentWeek, daysLeft, words } =
      partitionNames(partition);
    const prefix = accountNames(partition, "").account;
    const lists = [accounts, labels, inactive, byBalance, metadata, spentWeek, daysLeft, words];
    const keys = [prefix, ...lists, ...days.map((day) => spentName(partition, day))];
    await redis.eval(BUILD, keys.length, ...keys, ...args);
  };
  for (let at = 0; at < count; at++) {
    const id = `acc-${String(at).padStart(7, "0")}`;
    const partition = partitionOf(id, PARTITIONS);
    const args = chunks.get(partition) ?? [];
    chunks.set(partition, args);
    const status = at % 1000 === 0 ? "closed" : at % 100 === 0 ? "suspended" : "active";
    const label = `Customer ${at % 5000}`;
    const isPro = at % 10 === 0;
    const words = placesOfAccount(id, label, isPro ? { plan: "pro" } : {}).join("\n");
    args.push(id, label, status, String((at * 7919) % 20_000), isPro ? pro : "", words);
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
  { metadata: { plan: "pro" } },
  { label: "customer", status: "closed" },
  { prefix: "acc-05", status: "suspended" },
  { metadata: { plan: "pro" }, status: "closed" },
  { balanceBelow: 100 },
  { balanceBelow: 100, status: "closed" },
];

/** Each sort and filter, at three depths of the list that it goes through. */
export async function* accountPages(redis: Redis): AsyncGenerator<ListPage> {
  const nodes = oneNode(redis);
  for (const sort of SORTS)
    for (const filter of FILTERS) {
      const query: AccountQuery = { ...filter, sort, limit: LIMIT };
      const cursors = Object.entries({
        first: undefined,
        middle: await cursorAt(redis, query, 0.5),
        last: await cursorAt(redis, query, 0.999),
      });
      for (const [place, cursor] of cursors) {
        if (place !== "first" && cursor === undefined) continue;
        const name = `accounts ${sort ?? (filter.balanceBelow === undefined ? "id" : "balance")}`;
        const read = async () => (await listAccounts(nodes, { ...query, cursor })).accounts.length;
        yield { name, filter: JSON.stringify(filter), place, read };
      }
    }
}

/** The cursor of a page that begins at this share of the list, as one of its partitions has it. */
async function cursorAt(redis: Redis, query: AccountQuery, share: number): Promise<string | undefined> {
  const { prefix = "", label, status, metadata, balanceBelow } = query;
  const of = partitionNames(0);
  if (query.sort === undefined && balanceBelow === undefined) {
    const [digest] = Object.entries(metadata ?? {});
    const [name, start] =
      label !== undefined
        ? [of.labels, lowerCase(label)]
        : digest
          ? [of.metadata, `${metadataDigest(...digest)} ${prefix}`]
          : status === "suspended" || status === "closed"
            ? [of.inactive, `${status} ${prefix}`]
            : [of.accounts, prefix];
    const [from, to] = start === "" ? ["-", "+"] : [`[${start}`, `[${start}~`];
    const length = await redis.zlexcount(name, from!, to!);
    const [member] = await redis.zrange(name, from!, to!, "BYLEX", "LIMIT", Math.floor(length * share), 1);
    return member && cursorOf(["accounts", prefix, label, status, metadata], member);
  }
  const { sort = "balance" } = query;
  const today = spentName(0, new Date().toISOString().slice(0, 10));
  const lists = { "-spent_today": today, "-spent_7d": of.spentWeek, days_left: of.daysLeft };
  const name = lists[sort as keyof typeof lists] ?? of.byBalance;
  const isBelow = name === of.byBalance && balanceBelow !== undefined;
  const below = isBelow ? await redis.zcount(name, "-inf", `(${balanceBelow}`) : await redis.zcard(name);
  const rank = Math.floor(below * (isDescending(sort) ? 1 - share : share));
  const [member, score] = await redis.zrange(name, String(rank), String(rank), "WITHSCORES");
  const list = ["accounts", sort, balanceBelow, prefix, label, status, metadata];
  return member && cursorOf(list, `${score} ${member}`);
}
