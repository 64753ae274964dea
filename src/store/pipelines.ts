import type { ChainableCommander, Redis } from "ioredis";

/** One command for each item, in one round trip. @throws the first error */
export async function many<Answer, Item>(
  redis: Redis,
  items: readonly Item[],
  command: (pipe: ChainableCommander, item: Item) => ChainableCommander,
): Promise<Answer[]> {
  if (items.length === 0) return [];
  const pipe = redis.pipeline();
  for (const item of items) command(pipe, item);
  return answersOf<Answer>(await pipe.exec());
}

/**
 * One command for each item, in one round trip per server. Answers are in the order of the items.
 * @throws the first error
 */
export async function manyByNode<Answer, Item>(
  items: readonly Item[],
  nodeOf: (item: Item) => Redis,
  command: (pipe: ChainableCommander, item: Item) => ChainableCommander,
): Promise<Answer[]> {
  const byNode = Map.groupBy(items.keys(), (at) => nodeOf(items[at]!));
  const answers = new Array<Answer>(items.length);
  const read = async (redis: Redis, places: readonly number[]): Promise<void> => {
    const found = await many<Answer, number>(redis, places, (pipe, at) => command(pipe, items[at]!));
    for (const [index, at] of places.entries()) answers[at] = found[index]!;
  };
  await Promise.all([...byNode].map(([redis, places]) => read(redis, places)));
  return answers;
}

/** The answers of a pipeline or MULTI. @throws the first error */
export function answersOf<Answer>(results: [error: Error | null, answer: unknown][] | null): Answer[] {
  return (results ?? []).map(([error, answer]) => {
    if (error) throw error;
    return answer as Answer;
  });
}
