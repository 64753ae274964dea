import type { ChainableCommander, Redis } from "ioredis";
import { LIMITS } from "../domain/limits.ts";
import { isLater } from "../records/ledger-entries.ts";
import { accountNames, keyNames, partitionNames } from "../records/names.ts";
import { moneyOf } from "../records/packed-fields.ts";
import {
  lowerCase,
  metadataDigests,
  type Placed,
  placesOfAccount,
  placesOfKey,
  placesOfReference,
  readPlaced,
} from "../records/words.ts";
import { listPages, many, membersOf, pages } from "../redis/pipelines.ts";
import { isWanted, type Run } from "./verify-run.ts";

/** Accounts read at a time, and keys and references of each. */
const ACCOUNTS_AT_ONCE = 50;
const NAMES_AT_ONCE = 100;
/** Half a millisecond of Redis or so, if each has all of its names. */
const SCANS_AT_ONCE = 20;
/** A record of a key is a command of twenty fields. */
const RECORDS_AT_ONCE = 100;
/** Two commands each. */
const SUSPECTS_AT_ONCE = 50;
/** An owner that changes during as many readings is left to the next run. */
const TRIES_MAX = 5;

interface Member {
  list: string;
  member: string;
}
interface Item {
  owner: Placed;
  /** That the index has; undefined: all that it should have. */
  listed?: Member;
}
type OwnerRecord = (string | null)[];

/** Compares indexes with their records both ways, and the `terms` of keys with the fields that they are made of. */
export async function verifyIndexes(run: Run, redis: Redis, partition: number): Promise<void> {
  const of = partitionNames(partition);
  for await (const page of listPages(redis, of.accounts)) {
    const wanted = page.filter((accountId) => isWanted(run, accountId));
    for (let at = 0; at < wanted.length; at += ACCOUNTS_AT_ONCE)
      await verifyListedAs(run, redis, partition, wanted.slice(at, at + ACCOUNTS_AT_ONCE));
  }
  const byIdAtEnd = (member: string): Placed => ({ accountId: member.slice(member.lastIndexOf(" ") + 1) });
  const indexes: [list: string, ownerOf: (member: string) => Placed][] = [
    [of.labels, byIdAtEnd],
    [of.inactive, byIdAtEnd],
    [of.metadata, byIdAtEnd],
    [of.byBalance, byIdAtEnd],
    [of.words, readPlaced],
  ];
  for (const [list, ownerOf] of indexes)
    for await (const page of listPages(redis, list)) {
      const items = page.map((member) => ({ owner: ownerOf(member), listed: { list, member } }));
      const wanted = items.filter(({ owner }) => isWanted(run, owner.accountId));
      await compareMembers(run, redis, partition, wanted);
      await run.step();
    }
}

/** Each of these accounts, with its keys and references, is in the indexes. */
async function verifyListedAs(run: Run, redis: Redis, partition: number, accountIds: readonly string[]) {
  await compareMembers(
    run,
    redis,
    partition,
    accountIds.map((accountId) => ({ owner: { accountId } })),
  );
  await compareBalances(run, redis, partition, accountIds);
  let left = accountIds.flatMap((accountId) => [
    { accountId, field: "reference" as const, cursor: "0" },
    { accountId, field: "keyId" as const, cursor: "0" },
  ]);
  while (left.length > 0) {
    const found = await many<[cursor: string, flat: string[]], (typeof left)[number]>(
      redis,
      left,
      (pipe, { accountId, field, cursor }) => {
        const { references, keys } = accountNames(partition, accountId);
        return field === "keyId"
          ? pipe.zscan(keys, cursor, "COUNT", NAMES_AT_ONCE)
          : pipe.hscan(references, cursor, "COUNT", NAMES_AT_ONCE);
      },
      SCANS_AT_ONCE,
    );
    const items = left.flatMap(({ accountId, field }, at) =>
      membersOf(found[at]![1]).map((name) => ({ owner: { accountId, [field]: name } })),
    );
    for (const page of pages(items)) await compareMembers(run, redis, partition, page);
    left = left.flatMap((one, at) => (found[at]![0] === "0" ? [] : [{ ...one, cursor: found[at]![0] }]));
    await run.step();
  }
}

/** Reports members that are missing in the index, or there although the record has nothing of it. */
async function compareMembers(
  { report }: Run,
  redis: Redis,
  partition: number,
  items: readonly Item[],
): Promise<void> {
  let left: readonly Item[] = items;
  for (let tries = 0; left.length > 0 && tries < TRIES_MAX; tries++) {
    const records = await many<OwnerRecord, Item>(
      redis,
      left,
      (pipe, { owner }) => readRecord(pipe, partition, owner),
      RECORDS_AT_ONCE,
    );
    const suspects = left.flatMap((item, at) => {
      const due = membersOfOwner(partition, item.owner, records[at]!);
      const { listed } = item;
      if (!listed) {
        if (tries === 0) compareTerms(item.owner, records[at]!, report);
        const byList = Map.groupBy(due, ({ list }) => list);
        return [...byList].map(([list, of]) => ({
          ...{ item, at, list },
          members: of.map(({ member }) => member),
        }));
      }
      const isDue = due.some(({ list, member }) => list === listed.list && member === listed.member);
      return isDue ? [] : [{ item, at, list: listed.list, members: [listed.member] }];
    });
    // Scripts change a record and its members in one step, so a record that is the same behind the scores was so at them.
    const found = await many<(string | null)[], (typeof suspects)[number]>(
      redis,
      suspects,
      (pipe, { item, list, members }) => readRecord(pipe.zmscore(list, ...members), partition, item.owner),
      SUSPECTS_AT_ONCE,
    );
    const changed = new Set<Item>();
    for (const [nth, { item, at, list, members }] of suspects.entries()) {
      const [scores, after] = [found[2 * nth]!, found[2 * nth + 1]!];
      if (JSON.stringify(after) !== JSON.stringify(records[at])) {
        changed.add(item);
        continue;
      }
      for (const [place, score] of scores.entries())
        if ((score === null) === (item.listed === undefined))
          report("index", item.owner.accountId, messageOf(item, list, members[place]!));
    }
    left = [...changed];
  }
}

function messageOf({ owner: { accountId, keyId, reference }, listed }: Item, list: string, member: string) {
  const what = keyId ?? (reference === undefined ? accountId : `reference ${reference}`);
  return `${list}: ${JSON.stringify(member)} ${listed ? "is there, but not by the record" : "is missing"} of ${what}`;
}

/** The field `terms` of a key is made of these, in this order. */
const TERM_FIELDS = [
  "tier",
  ...LIMITS.filter(({ on }) => (on as readonly string[]).includes("key")).map(({ name }) => name),
  ...["expires_at", "revoked_at", "restrictions", "spends_in"],
];

/** The fields of its record by which an owner is listed. The revision tells a record that changed and changed back. */
function readRecord(pipe: ChainableCommander, partition: number, { accountId, keyId, reference }: Placed) {
  const { account, references } = accountNames(partition, accountId);
  if (reference !== undefined) return pipe.hmget(references, reference);
  if (keyId === undefined)
    return pipe.hmget(account, "created_at", "revision", "label", "metadata", "status");
  return pipe.hmget(
    ...([
      keyNames(partition, keyId).key,
      "account_id",
      "revision",
      "label",
      "terms",
      ...TERM_FIELDS,
    ] as const),
  );
}

function membersOfOwner(partition: number, owner: Placed, record: OwnerRecord): Member[] {
  const { accountId, keyId, reference } = owner;
  const { labels, inactive, metadata: values, byBalance, words } = partitionNames(partition);
  const inWords = (places: readonly string[]) => places.map((member) => ({ list: words, member }));
  // Of a key the account, of a reference what it stands for.
  const [first, , label, metadata, status] = record;
  if (typeof first !== "string") return [];
  if (reference !== undefined) return inWords(placesOfReference(accountId, reference));
  if (keyId !== undefined)
    return first === accountId ? inWords(placesOfKey(accountId, keyId, label ?? undefined)) : [];
  const read: Record<string, unknown> = JSON.parse(metadata ?? "{}");
  const listed = (list: string, text: string | null | undefined): Member[] =>
    typeof text === "string" ? [{ list, member: `${text} ${accountId}` }] : [];
  return [
    ...listed(labels, typeof label === "string" ? lowerCase(label) : undefined),
    ...listed(inactive, status),
    ...metadataDigests(read).flatMap((digest) => listed(values, digest)),
    { list: byBalance, member: accountId },
    ...inWords(placesOfAccount(accountId, label ?? undefined, read)),
  ];
}

function compareTerms({ accountId, keyId }: Placed, record: OwnerRecord, report: Run["report"]): void {
  const [, , , terms, ...fields] = record;
  if (keyId === undefined || typeof terms !== "string") return;
  const made = fields.map((value) => value ?? "-").join(" ");
  if (terms !== made)
    report("index", accountId, `${keyId}: its terms are ${JSON.stringify(terms)}, by its record "${made}"`);
}

/** ROLLUP lists balances, so an account with entries that it has not counted yet is not compared. */
async function compareBalances(
  { report }: Run,
  redis: Redis,
  partition: number,
  accountIds: readonly string[],
) {
  const { byBalance, rolled } = partitionNames(partition);
  const found = await many<string | null, string>(redis, accountIds, (pipe, accountId) => {
    const { account } = accountNames(partition, accountId);
    return pipe
      .hget(account, "money")
      .hget(rolled, "entry")
      .zscore(byBalance, accountId)
      .hget(account, "money");
  });
  for (const [at, accountId] of accountIds.entries()) {
    const [before, counted, score, after] = found.slice(4 * at, 4 * at + 4);
    const { balance = "0", last_entry: last } = moneyOf(before);
    const isCounted =
      last === undefined ? balance === "0" : typeof counted === "string" && !isLater(last, counted);
    if (!isCounted || before !== after || typeof score !== "string" || Number(score) === Number(balance))
      continue;
    report("index", accountId, `${byBalance}: it is listed with ${score}, and has ${balance}`);
  }
}
