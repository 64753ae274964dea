import { moneyOfUnits, sumOfMoney } from "../domain/money.ts";
import { archivedUntilMs } from "../operations/credits/archive-lag.ts";
import type { GrantKind } from "../records/ledger-entries.ts";
import { META, soldName } from "../records/names.ts";
import { readsOfMost, type Unread } from "../redis/partition-reads.ts";
import { flatHash, pairsOf } from "../redis/pipelines.ts";
import { storeNowMs } from "../redis/server-info.ts";
import { partitionsOf, type RedisNodes } from "../redis/store-facts.ts";
import { rolledSinceOf } from "./all-usage.ts";
import { type ArchivedStatements, requireMonth } from "./statements.ts";
import { dayStartMs, monthBounds } from "./usage.ts";

/** Each may have some 600 fields, a sixth of a millisecond of Redis. */
const PARTITIONS_AT_ONCE = 4;

export interface Sale {
  kind: GrantKind;
  /** Empty for credits by number; `*` for further packages together. */
  package: string;
  currency: string;
  grants: number;
  credits: number;
  /** A decimal; undefined where nothing was paid. */
  amountPaid: string | undefined;
}

interface Sales {
  sales: Sale[];
  source: "archive" | "redis";
  /** Earlier grants are not counted, Unix ms; undefined if those of the whole month are. */
  sinceMs: number | undefined;
  /** Of the archive: later grants may be missing, Unix ms; undefined if it has all of the month. */
  untilMs: number | undefined;
  unread: Unread | undefined;
}

/** @throws OperatorError `unavailable` while the archive cannot be used */
export type ArchivedSales = (month: string) => Promise<Sale[]>;

/** A month's grants, a second behind, from Redis or else the archive; without reversals. @throws OperatorError `invalid_month` */
export async function salesOf(
  nodes: RedisNodes,
  month: string,
  archive?: { sales: ArchivedSales } & Pick<ArchivedStatements, "lostUntilMs">,
): Promise<Sales> {
  requireMonth(month);
  const { entriesMs } = await rolledSinceOf(nodes, await storeNowMs(nodes.ofName(META)));
  const { first, next } = monthBounds(month);
  const [beginMs, endMs] = [dayStartMs(first), dayStartMs(next)];
  const isWhole = entriesMs <= beginMs;
  if (archive && !isWhole) {
    const lostMs = (await archive.lostUntilMs(endMs)) ?? 0;
    const sinceMs = lostMs >= beginMs ? lostMs + 1 : undefined;
    const untilMs = await archivedUntilMs(nodes, endMs);
    return { sales: await archive.sales(month), source: "archive", sinceMs, untilMs, unread: undefined };
  }
  const partitions = Array.from({ length: await partitionsOf(nodes) }, (_, partition) => ({ partition }));
  const reads = readsOfMost(nodes);
  const found = await reads.many<string[], { partition: number }>(
    partitions,
    (pipe, { partition }) => flatHash(pipe, soldName(partition, month)),
    PARTITIONS_AT_ONCE,
  );
  const sinceMs = isWhole ? undefined : entriesMs;
  return { sales: sumOf(found), source: "redis", sinceMs, untilMs: undefined, unread: reads.unread() };
}

export const amountsPaid = (sales: readonly Sale[]): Record<string, string> =>
  sumOfMoney(
    sales.flatMap(({ amountPaid: amount, currency }) => (amount === undefined ? [] : [{ amount, currency }])),
  );

function sumOf(records: readonly (readonly string[] | undefined)[]): Sale[] {
  const sums = new Map<string, { grants: number; credits: number; paid: bigint | undefined }>();
  for (const record of records)
    for (const [field, number] of pairsOf(record ?? [])) {
      const space = field.indexOf(" ");
      const group = field.slice(space + 1);
      let sum = sums.get(group);
      if (!sum) {
        sum = { grants: 0, credits: 0, paid: undefined };
        sums.set(group, sum);
      }
      const what = field.slice(0, space);
      if (what === "grants") sum.grants += Number(number);
      if (what === "credits") sum.credits += Number(number);
      if (what === "paid") sum.paid = (sum.paid ?? 0n) + BigInt(number);
    }
  return [...sums]
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .map(([group, { grants, credits, paid }]) => {
      const [, kind, money = "", name = ""] = /^(\S+) (\S+) (.*)$/s.exec(group) ?? [];
      const currency = paid === undefined || money === "-" ? "" : money;
      return {
        ...{ kind: kind as GrantKind, package: name, currency },
        ...{ grants, credits },
        amountPaid: currency === "" ? undefined : moneyOfUnits(paid!, currency),
      };
    });
}
