/**
 * Gathers what one turn of the event loop brings, and hands it over at the turn's end. Decision 0026.
 * @param take is given the items of a turn, in their order
 * @returns adds an item to those of this turn
 */
export function atTurnEnd<T>(take: (items: readonly T[]) => void): (item: T) => void {
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
