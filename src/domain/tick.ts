/**
 * Gathers what one tick of the event loop brings, and hands it over at the tick's end. Decision 0026.
 * @param take is given the items of a tick, in their order
 * @returns adds an item to those of this tick
 */
export function atTickEnd<T>(take: (items: readonly T[]) => void): (item: T) => void {
  let items: T[] = [];
  const end = (): void => {
    const gathered = items;
    items = [];
    take(gathered);
  };
  return (item) => {
    if (items.length === 0) setImmediate(end);
    items.push(item);
  };
}
