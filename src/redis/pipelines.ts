import type { ChainableCommander, Redis } from "ioredis";
import { isOfSlot } from "./script-errors.ts";

/** Redis serves nobody else between commands that come together: of cheap ones, this is half a millisecond or so. */
const ITEMS_AT_ONCE = 200;

/** One command per item, in bounded round trips one after the other. @param atOnce for commands that are not cheap @throws the first error */
export async function many<Answer, Item>(
  redis: Redis,
  items: readonly Item[],
  command: (pipe: ChainableCommander, item: Item) => ChainableCommander,
  atOnce = ITEMS_AT_ONCE,
): Promise<Answer[]> {
  if (items.length <= atOnce) return inOneTrip(redis, items, command);
  const answers: Answer[][] = [];
  for (let from = 0; from < items.length; from += atOnce)
    answers.push(await inOneTrip(redis, items.slice(from, from + atOnce), command));
  return answers.flat(1) as Answer[];
}

async function inOneTrip<Answer, Item>(
  redis: Redis,
  items: readonly Item[],
  command: (pipe: ChainableCommander, item: Item) => ChainableCommander,
): Promise<Answer[]> {
  if (items.length === 0) return [];
  const pipe = redis.pipeline();
  for (const item of items) command(pipe, item);
  return answersOf<Answer>(await pipe.exec());
}

/** All servers at the same time. Answers are in the order of the items. @throws the first error */
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

/**
 * All fields of a hash and their values, in one flat list. The client makes an object of the answer to `hgetall`, and does so by the
 * name in small letters; of some hundred fields that costs more than to read them.
 */
export const flatHash = (pipe: ChainableCommander, name: string): ChainableCommander =>
  pipe.call("HGETALL", name);

interface Server {
  command<T>(work: (redis: Redis) => Promise<T>): Promise<T>;
}

/** One command for each item, all of a tick of the event loop in one round trip per server. */
export function pipelineOfTick<Item, Answer>(
  serverOf: (item: Item) => Server,
  command: (pipe: ChainableCommander, item: Item) => ChainableCommander,
): (item: Item) => Promise<Answer> {
  let waiting: { item: Item; answer: PromiseWithResolvers<Answer> }[] = [];

  async function send(server: Server, batch: typeof waiting): Promise<void> {
    const items = batch.map(({ item }) => item);
    try {
      const answers = await server.command((redis) => inOneTrip<Answer, Item>(redis, items, command));
      for (const [at, { answer }] of batch.entries()) answer.resolve(answers[at]!);
    } catch (error) {
      // The slot of one name does not fail the others.
      const isOfOne = batch.length > 1 && isOfSlot((error as Error).cause ?? error);
      if (isOfOne) for (const one of batch) void send(server, [one]);
      else for (const { answer } of batch) answer.reject(error);
    }
  }

  function flush(): void {
    const byServer = Map.groupBy(waiting, ({ item }) => serverOf(item));
    waiting = [];
    for (const [server, batch] of byServer) void send(server, batch);
  }

  return (item) => {
    if (waiting.length === 0) setImmediate(flush);
    const answer = Promise.withResolvers<Answer>();
    waiting.push({ item, answer });
    return answer.promise;
  };
}

export function answersOf<Answer>(results: [error: Error | null, answer: unknown][] | null): Answer[] {
  return (results ?? []).map(([error, answer]) => {
    if (error) throw error;
    return answer as Answer;
  });
}

/** Ids or records read at a time: about a millisecond of Redis. */
const PAGE = 500;
/** Members of a sorted set that one command reads: a member of a long list takes some microseconds. */
const SCANNED = 200;

/** The members of a sorted set in bounded pages, in no particular order; one may come twice. @param from a cursor of ZSCAN */
export async function* listPages(redis: Redis, name: string, from = "0"): AsyncGenerator<string[]> {
  let cursor = from;
  do {
    const [next, flat] = await redis.zscan(name, cursor, "COUNT", SCANNED);
    cursor = next;
    yield* pages(membersOf(flat));
  } while (cursor !== "0");
}

export function* pages<Item>(items: readonly Item[]): Generator<Item[]> {
  for (let at = 0; at < items.length; at += PAGE) yield items.slice(at, at + PAGE);
}

/** @param flat members and their scores, as ZSCAN answers them */
export const membersOf = (flat: readonly string[]): string[] => flat.filter((_, at) => at % 2 === 0);

/** @param flat members and their scores, or fields and their values, in turn */
export const pairsOf = (flat: readonly string[]): [name: string, value: string][] =>
  membersOf(flat).map((name, at) => [name, flat[2 * at + 1] ?? ""]);
