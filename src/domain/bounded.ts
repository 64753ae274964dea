export function dropOldest(map: Map<string, unknown>, max: number): void {
  if (map.size < max) return;
  const [oldest] = map.keys();
  map.delete(oldest!);
}
