/**
 * Items of several owners who take turns: one with a thousand items delays another's by one. An item must not be in it
 * twice. Used where requests wait for Redis and for the upstream (decisions 0032 and 0036), and where calls of the management API wait.
 */
export function createRoundRobin<Item>() {
  /** The owner at the front is next. An owner without items is not in it. */
  const lines = new Map<string, Set<Item>>();
  let size = 0;

  /** Takes an item out, wherever it is. */
  function remove(owner: string, item: Item): void {
    const line = lines.get(owner);
    if (!line?.delete(item)) return;
    size--;
    if (line.size === 0) lines.delete(owner);
  }

  return {
    get size() {
      return size;
    },
    /** How many of an owner's items are in it. */
    sizeOf: (owner: string): number => lines.get(owner)?.size ?? 0,
    /** Puts an item behind its owner's others. A new owner comes after those that are there. */
    add(owner: string, item: Item): void {
      const line = lines.get(owner);
      if (line) line.add(item);
      else lines.set(owner, new Set([item]));
      size++;
    },
    /**
     * Takes the next owner's oldest item out; the owner goes behind the others with the rest.
     * @param mayGo owners that are passed over when this is false
     * @returns undefined when there is none
     */
    next(mayGo?: (owner: string) => boolean): Item | undefined {
      for (const [owner, line] of lines) {
        if (mayGo && !mayGo(owner)) continue;
        const item = line.values().next().value!;
        remove(owner, item);
        if (lines.delete(owner)) lines.set(owner, line);
        return item;
      }
      return undefined;
    },
    remove,
    /**
     * Makes room for one more item of an owner: takes the newest one out of the owner with the most.
     * @returns undefined if no other owner would still have as many
     */
    makeRoom(owner: string): Item | undefined {
      let [largest, most] = [owner, (lines.get(owner)?.size ?? 0) + 1];
      for (const [each, line] of lines) if (line.size > most) [largest, most] = [each, line.size];
      if (largest === owner) return undefined;
      const newest = [...lines.get(largest)!].at(-1)!;
      remove(largest, newest);
      return newest;
    },
    /** Takes all out. */
    clear(): Item[] {
      const items = [...lines.values()].flatMap((line) => [...line]);
      lines.clear();
      size = 0;
      return items;
    },
  };
}
