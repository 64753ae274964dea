import type { Script } from "./script-definition.ts";

/** A place in a list that is ordered by score, then by the bytes of the member. */
export interface RankedPlace {
  score: number;
  member: string;
}

interface RankedCall {
  /** A sorted set. */
  list: string;
  /** The page begins behind it; undefined for the first. */
  after: RankedPlace | undefined;
  most: number;
  descending: boolean;
}

/** A page of a sorted list of accounts. Reads only. */
export const ranked: Script<RankedCall, RankedPlace[]> = {
  name: "ranked",
  keys: ({ list }) => [list],
  args: ({ after, most, descending }) => [after?.score ?? "", after?.member ?? "", most, descending ? 1 : 0],
  read([, ...page]) {
    const places: RankedPlace[] = [];
    for (let at = 0; at + 1 < page.length; at += 2)
      places.push({ member: String(page[at]), score: Number(page[at + 1]) });
    return places;
  },
};
