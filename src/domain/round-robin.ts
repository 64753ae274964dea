/** Owners take turns: a thousand items of one delay another's by one. Decisions 0032 and 0036. */
export function createRoundRobin<Item>() {
  const lines = new Map<string, Set<Item>>();
  let size = 0;

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
    sizeOf: (owner: string): number => lines.get(owner)?.size ?? 0,
    add(owner: string, item: Item): void {
      const line = lines.get(owner);
      if (line) line.add(item);
      else lines.set(owner, new Set([item]));
      size++;
    },
    /** @param mayGo owners that are skipped when this is false */
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
    /** Removes the newest item of the owner with most. @returns undefined if no other owner would still have as many */
    makeRoom(owner: string): Item | undefined {
      let [largest, most] = [owner, (lines.get(owner)?.size ?? 0) + 1];
      for (const [each, line] of lines) if (line.size > most) [largest, most] = [each, line.size];
      if (largest === owner) return undefined;
      const newest = [...lines.get(largest)!].at(-1)!;
      remove(largest, newest);
      return newest;
    },
    clear(): Item[] {
      const items = [...lines.values()].flatMap((line) => [...line]);
      lines.clear();
      size = 0;
      return items;
    },
  };
}
