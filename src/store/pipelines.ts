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

/** The answers of a pipeline or MULTI. @throws the first error */
export function answersOf<Answer>(results: [error: Error | null, answer: unknown][] | null): Answer[] {
  return (results ?? []).map(([error, answer]) => {
    if (error) throw error;
    return answer as Answer;
  });
}
