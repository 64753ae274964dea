import type { Redis } from "ioredis";
import { type RequestRecord, requestOf, requestText } from "../../src/records/records.ts";

/** A part or field of a request; undefined removes it, a function changes a number. */
type Change = string | number | undefined | ((earlier: number) => number);

/** A request, by the name of its record. */
export const readRequest = async (redis: Pick<Redis, "get">, name: string): Promise<RequestRecord> =>
  requestOf(await redis.get(name));

/** Changes what is stored of a request, past the scripts. */
export async function changeRequest(
  redis: Pick<Redis, "get" | "set">,
  name: string,
  changes: { [Part in keyof RequestRecord]: Change },
): Promise<void> {
  const record: Record<string, string> = { ...(await readRequest(redis, name)) };
  for (const [part, change] of Object.entries(changes)) {
    const value = typeof change === "function" ? change(Number(record[part])) : change;
    if (value === undefined) delete record[part];
    else record[part] = String(value);
  }
  await redis.set(name, requestText(record));
}
