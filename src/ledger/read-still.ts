import type { ChainableCommander, Redis } from "ioredis";
import { answersOf } from "../store/pipelines.ts";
import type { RequestRecord } from "../store/records.ts";

/**
 * Reads a request's record and related data at one state of the request. A request never returns to a state that it has
 * left, so the same state before and after the reads held during them. Undefined if it changed; the next run checks it.
 * No MULTI: a Redis without memory refuses even reads there.
 */
export async function readStill<Answers extends unknown[]>(
  redis: Redis,
  name: string,
  reads: (pipe: ChainableCommander) => ChainableCommander,
): Promise<[RequestRecord, ...Answers] | undefined> {
  const pipe = reads(redis.pipeline().hgetall(name)).hget(name, "state");
  const answers = answersOf<unknown>(await pipe.exec());
  const stateAfter = answers.pop();
  const read = answers as [RequestRecord, ...Answers];
  return (read[0].state ?? null) === stateAfter ? read : undefined;
}
