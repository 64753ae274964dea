import type { KeyRecord } from "./keys.ts";

/** The oldest keys of a walk, and whether there are more. */
export interface KeyPage {
  keys: KeyRecord[];
  more: boolean;
}

/**
 * The oldest keys that come after `after`, in the order of creation. Never more than two pages are in memory, however
 * many keys there are; a key that the walk shows twice is there once.
 */
export async function oldestKeys(
  walk: AsyncIterable<KeyRecord>,
  options: { limit: number; after?: KeyRecord | undefined; wanted?: (key: KeyRecord) => boolean },
): Promise<KeyPage> {
  const { limit, after, wanted = () => true } = options;
  let keys: KeyRecord[] = [];
  let more = false;
  const cut = (): void => {
    keys.sort(byAge);
    keys = keys.filter((key, at) => key.keyId !== keys[at - 1]?.keyId);
    if (keys.length <= limit) return;
    keys.length = limit;
    more = true;
  };
  for await (const key of walk) {
    if (after && byAge(key, after) <= 0) continue;
    if (!wanted(key)) continue;
    keys.push(key);
    if (keys.length >= 2 * limit) cut();
  }
  cut();
  return { keys, more };
}

/** Oldest first; keys made in the same millisecond have an order, too. */
const byAge = (a: KeyRecord, b: KeyRecord): number =>
  (a.createdAtMs ?? 0) - (b.createdAtMs ?? 0) || (a.keyId < b.keyId ? -1 : a.keyId > b.keyId ? 1 : 0);
