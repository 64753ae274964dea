import type { Redis } from "ioredis";
import type { StoreFacts } from "../redis/store-facts.ts";
import type { Run } from "../scripts/script-definition.ts";

/** The way to a store: the connection's, the outbox's past the breakers, or an operator's. */
export interface TaskStore {
  of(partition: number): { run: Run };
  ofName(name: string): { command<T>(work: (redis: Redis) => Promise<T>): Promise<T> };
  /** Undefined until the store was reached, and nothing is sent before. */
  facts(): Omit<StoreFacts, "id"> | undefined;
}
