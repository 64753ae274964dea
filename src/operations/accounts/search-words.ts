import { accountNames, keyNames, partitionNames } from "../../records/names.ts";
import { listedPart, type Placed, readPlaced, searchedMetadata, wordsText } from "../../records/words.ts";
import { readsOfMost, type Unread } from "../../redis/partition-reads.ts";
import { partitionsOf, type RedisNodes } from "../../redis/store-facts.ts";
import { firstMembers } from "./sorted-lists.ts";

/** For a token of some accounts: what is looked at to find theirs. */
const OF_ALL_MAX = 1000;

/** Of an account: its label or metadata has the words. Of a key: its label. Of a reference: itself. */
interface WordsFound extends Placed {
  /** Of the key or account that was found. */
  label: string | null;
  /** Name and value that have the words, if the label has not. */
  metadata: string | null;
}

/** Everything with words that begin with this text. @param own visible accounts; undefined: all @returns at most `limit`; `complete` if all */
export async function searchWords(
  nodes: RedisNodes,
  q: string,
  { limit, own }: { limit: number; own?: readonly string[] | undefined },
): Promise<{ found: WordsFound[]; complete: boolean; unread: Unread | undefined }> {
  const reads = readsOfMost(nodes);
  const words = wordsText(q);
  if (words === "") return { found: [], complete: true, unread: undefined };
  const partitions = await partitionsOf(nodes);
  const nameOf = (partition: number): string => partitionNames(partition).words;
  // An account may be there more than once.
  const most = own ? OF_ALL_MAX : 2 * limit + 1;
  const members = await firstMembers(
    reads,
    { partitions, nameOf, prefix: listedPart(words), after: "" },
    most,
  );
  const unique = new Map(
    members.map(({ member, partition }) => {
      const placed = readPlaced(member);
      return [JSON.stringify(placed), { ...placed, partition }];
    }),
  );
  const placed = [...unique.values()].filter(({ accountId }) => own?.includes(accountId) ?? true);
  const records = await reads.many<(string | null)[], (typeof placed)[number]>(
    placed.slice(0, limit + 1),
    (pipe, { accountId, keyId, partition }) =>
      keyId === undefined
        ? pipe.hmget(accountNames(partition, accountId).account, "label", "metadata")
        : pipe.hmget(keyNames(partition, keyId).key, "label"),
  );
  const found = placed.slice(0, limit + 1).flatMap(({ partition: _, ...one }, at): WordsFound[] => {
    const [label = null, metadata] = records[at] ?? [];
    if (one.reference !== undefined)
      return hasWords(one.reference, words) ? [{ ...one, label: null, metadata: null }] : [];
    if (hasWords(label ?? "", words)) return [{ ...one, label, metadata: null }];
    const value = searchedMetadata(JSON.parse(metadata ?? "{}")).find(([, text]) => hasWords(text, words));
    return value ? [{ ...one, label, metadata: value.join(": ") }] : [];
  });
  return {
    found: found.slice(0, limit),
    complete: members.length < most && placed.length <= limit,
    unread: reads.unread(),
  };
}

/** The index has only the beginning of a long text. */
const hasWords = (text: string, words: string): boolean => ` ${wordsText(text)}`.includes(` ${words}`);
