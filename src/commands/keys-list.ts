import { type Command, Option } from "commander";
import { eachKey, findKey, type KeyRecord } from "../store/keys.ts";
import { command, moment, note, print, requireAccount, table, whole, withRedis } from "./context.ts";
import { KEY_STATUSES, type KeyStatus, shown, statusOf, statusText } from "./keys-shown.ts";

const LIMIT_MAX = 100_000;

interface ListFlags {
  account?: string;
  tier?: string;
  status?: KeyStatus;
  limit?: number;
  after?: string;
  json?: boolean;
}

export function listCommand(): Command {
  return command("list", "all keys, or some, the oldest first")
    .option("--account <id>", "of this account only")
    .option("--tier <name>", "of this tier only")
    .addOption(new Option("--status <name>", "in this state only").choices(KEY_STATUSES))
    .option("--limit <n>", "at most so many", whole(1, LIMIT_MAX))
    .option("--after <key-id>", "those that come after this one")
    .action(async (flags: ListFlags) => {
      const { keys, more } = await withRedis(async (redis) => {
        if (flags.account !== undefined) await requireAccount(redis, flags.account);
        const after = flags.after === undefined ? undefined : await findKey(redis, flags.after);
        return pageOf(eachKey(redis, flags.account), flags, after);
      });
      const next = more ? keys.at(-1)?.keyId : undefined;
      const rows = keys.map((key) => [
        key.keyId,
        key.accountId,
        key.tier,
        statusText(key),
        moment(key.createdAtMs),
        moment(key.expiresAtMs),
      ]);
      const headings = ["KEY ID", "ACCOUNT", "TIER", "STATUS", "CREATED", "EXPIRES"];
      print(
        {
          json: { keys: keys.map(shown), next },
          text: table(headings, rows, { gives: ["ACCOUNT"], drops: ["EXPIRES", "CREATED", "TIER"] }),
        },
        flags,
      );
      if (next !== undefined && !flags.json) note(`There are more: --after ${next}`);
    });
}

/** One page in the order of creation. Never more than two pages are in memory, however many keys there are. */
async function pageOf(
  keys: AsyncIterable<KeyRecord>,
  { tier, status, limit = Number.POSITIVE_INFINITY }: ListFlags,
  after: KeyRecord | undefined,
): Promise<{ keys: KeyRecord[]; more: boolean }> {
  const page: KeyRecord[] = [];
  let more = false;
  const cut = (): void => {
    page.sort(byAge);
    if (page.length <= limit) return;
    page.length = limit;
    more = true;
  };
  for await (const key of keys) {
    if (after && byAge(key, after) <= 0) continue;
    if (tier !== undefined && key.tier !== tier) continue;
    if (status !== undefined && statusOf(key) !== status) continue;
    page.push(key);
    if (page.length >= 2 * limit) cut();
  }
  cut();
  return { keys: page, more };
}

/** Oldest first; a key that was made in the same millisecond has its place, too. */
const byAge = (a: KeyRecord, b: KeyRecord): number =>
  (a.createdAtMs ?? 0) - (b.createdAtMs ?? 0) || (a.keyId < b.keyId ? -1 : a.keyId > b.keyId ? 1 : 0);
