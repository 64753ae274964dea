import type { Redis } from "ioredis";
import { accountOf, moneyText } from "../../src/records/packed-fields.ts";
import type { AccountRecord, MONEY_FIELDS } from "../../src/records/records.ts";

type Money = Partial<Record<keyof typeof MONEY_FIELDS, string | number>>;

/** An account's record with the values of its money. @param name of the record */
export const accountIn = async (redis: Redis, name: string): Promise<AccountRecord> =>
  accountOf(await redis.hgetall(name));

/** Changes an account by hand. */
export async function changeMoney(redis: Redis, name: string, changes: Money): Promise<void> {
  const texts = Object.entries(changes).map(([field, value]) => [field, String(value)]);
  const money = moneyText({ ...(await accountIn(redis, name)), ...Object.fromEntries(texts) });
  await redis.hset(name, "money", money);
}

/** Adds to a number of an account by hand; returns it. */
export async function addMoney(
  redis: Redis,
  name: string,
  field: Exclude<keyof Money, "last_entry">,
  by: number,
): Promise<number> {
  const value = Number((await accountIn(redis, name))[field] ?? 0) + by;
  await changeMoney(redis, name, { [field]: value });
  return value;
}

/** Sets fields of an account by hand, as ACCOUNT does; null removes one. */
export async function changeAccount(
  redis: Redis,
  name: string,
  fields: Readonly<Record<string, string | number | null>>,
): Promise<void> {
  for (const [field, value] of Object.entries(fields)) {
    if (value === null) await redis.hdel(name, field);
    else await redis.hset(name, field, value);
  }
  await changeMoney(redis, name, {});
}
