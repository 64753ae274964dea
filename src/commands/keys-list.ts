import { type Command, Option } from "commander";
import { keyShown } from "../admin/api/shown.ts";
import { requireAccount } from "../operations/accounts/accounts.ts";
import type { AccountRefusals } from "../operations/accounts/refusals.ts";
import {
  eachKey,
  findKey,
  KEY_STATUSES,
  type KeyPage,
  type KeyRecord,
  type KeyStatus,
  oldestKeys,
} from "../operations/keys/keys.ts";
import { readsOfMost, type Unread } from "../redis/partition-reads.ts";
import type { RedisNodes } from "../redis/store-facts.ts";
import { flat } from "./operation-command.ts";
import { command, whole } from "./options.ts";
import { jsonList, note, noteUnread, writeOut } from "./output.ts";
import { requireConfig, withRedis } from "./redis.ts";
import { iso, moment, type PaintedCell, table } from "./terminal.ts";

const LIMIT_MAX = 100_000;
/** Keys found in one walk over the store. Memory grows with it, and the number of walks shrinks. */
const PAGE_KEYS = 50_000;
const LINES = 1000;

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
    .action((flags: ListFlags) => withRedis((nodes) => list(nodes, flags)));
}

/** Memory is bounded however many keys there are. @param pageKeys for tests */
export async function list(nodes: RedisNodes, flags: ListFlags, pageKeys = PAGE_KEYS): Promise<void> {
  if (flags.account !== undefined) await requireAccount(nodes, flags.account);
  const output = flags.json ? jsonOutput() : tableOutput();
  let after = flags.after === undefined ? undefined : await findKey(nodes, flags.after);
  const reads = readsOfMost(nodes);
  let left = flags.limit ?? Number.POSITIVE_INFINITY;
  let page: KeyPage;
  do {
    page = await oldestKeys(eachKey(nodes, flags.account, reads), {
      limit: Math.min(left, pageKeys),
      after,
      wanted: wantedBy(flags),
    });
    for (let at = 0; at < page.keys.length; at += LINES) await output.write(page.keys.slice(at, at + LINES));
    left -= page.keys.length;
    after = page.keys.at(-1);
  } while (page.more && left > 0);
  const unread = reads.unread();
  await output.end(page.more ? after?.keyId : undefined, unread);
  if (unread) noteUnread(unread);
}

const wantedBy =
  ({ tier, status }: ListFlags) =>
  (key: KeyRecord): boolean =>
    (tier === undefined || key.tier === tier) && (status === undefined || key.status === status);

interface Output {
  write(keys: readonly KeyRecord[]): Promise<void>;
  /** @param next the key after which there are more */
  end(next: string | undefined, unread: Unread | undefined): Promise<void>;
}

function jsonOutput(): Output {
  const list = jsonList("keys");
  const { tiers } = requireConfig();
  return {
    write: (keys) => list.write(keys.map((key) => flat(keyShown(key, tiers)))),
    end: (next, unread) => list.end({ next, unread }),
  };
}

const HEADINGS = ["KEY ID", "ACCOUNT", "TIER", "STATUS", "CREATED", "EXPIRES"];

function tableOutput(): Output {
  let begun = false;
  async function write(keys: readonly KeyRecord[]): Promise<void> {
    const rows = keys.map((key) => [
      key.keyId,
      key.accountId,
      key.tier,
      statusText(key),
      moment(key.createdAtMs),
      moment(key.expiresAtMs),
    ]);
    const text = table(HEADINGS, rows, { gives: ["ACCOUNT"], drops: ["EXPIRES", "CREATED", "TIER"] });
    await writeOut(`${begun ? text.slice(text.indexOf("\n") + 1) : text}\n`);
    begun = true;
  }
  return {
    write,
    async end(next) {
      if (!begun) await write([]);
      if (next !== undefined) note(`There are more: --after ${next}`);
    },
  };
}

const COLOURS = { active: "green", expired: "yellow", revoked: "red" } as const;

export const statusText = ({ status }: KeyRecord): PaintedCell => ({ style: COLOURS[status], text: status });

const REFUSALS_SHOWN_MAX = 20;

export const refusalsJson = ({ hours, uncounted }: AccountRefusals) => ({
  refusals: hours.map(({ atMs, keyId, outcome, count }) => ({
    ...{ hour: iso(atMs), key_id: keyId, outcome, count },
  })),
  uncounted_refusals: uncounted || undefined,
});

export function refusalsText({ hours, uncounted }: AccountRefusals): string[] {
  if (hours.length === 0) return [];
  const rows = hours
    .slice(0, REFUSALS_SHOWN_MAX)
    .map(({ atMs, keyId, outcome, count }) => [iso(atMs), keyId, outcome, count]);
  const more = hours.length - rows.length;
  return [
    table(["REFUSED IN THE HOUR OF", "KEY ID", "OUTCOME", "TIMES"], rows),
    ...(more > 0 ? [`${more} earlier rows of the last eight days: --json has them.`] : []),
    ...(uncounted > 0 ? [`${uncounted} refusals of this and other accounts had no room in the counts.`] : []),
  ];
}
