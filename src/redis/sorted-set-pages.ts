import type { Redis } from "ioredis";

/** Ids or records read at a time: about a millisecond of Redis. */
const PAGE = 500;

/** The members of a sorted set in bounded pages, in no particular order; one may come twice. @param from a cursor of ZSCAN */
export async function* listPages(redis: Redis, name: string, from = "0"): AsyncGenerator<string[]> {
  let cursor = from;
  do {
    const [next, flat] = await redis.zscan(name, cursor, "COUNT", PAGE);
    cursor = next;
    yield* pages(membersOf(flat));
  } while (cursor !== "0");
}

/** Items in bounded pages. */
export function* pages<Item>(items: readonly Item[]): Generator<Item[]> {
  for (let at = 0; at < items.length; at += PAGE) yield items.slice(at, at + PAGE);
}

/** @param flat members and their scores, as ZSCAN answers them */
export const membersOf = (flat: readonly string[]): string[] => flat.filter((_, at) => at % 2 === 0);
