import { moneyOfUnits } from "../domain/money.ts";
import type { GrantKind } from "../records/ledger-entries.ts";
import { META, soldName } from "../records/names.ts";
import type { RedisNodes } from "../redis/nodes.ts";
import { readsOfMost, type Unread } from "../redis/partition-reads.ts";
import { storeNowMs } from "../redis/server-clock.ts";
import { partitionsOf } from "../redis/store-facts.ts";
import { rolledSinceOf } from "./all-usage.ts";
import { requireMonth } from "./statements.ts";
import { dayStartMs, monthBounds } from "./usage.ts";

/** Grants of one kind, package and currency in a UTC month. */
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
  unread: Unread | undefined;
}

/** @throws OperatorError `unavailable` while the archive cannot be used */
export type ArchivedSales = (month: string) => Promise<Sale[]>;

/** A month's grants, a second behind, from Redis or else the archive; without reversals. @throws OperatorError `invalid_month` */
export async function salesOf(
  nodes: RedisNodes,
  month: string,
  archive?: { sales: ArchivedSales },
): Promise<Sales> {
  requireMonth(month);
  const { entriesMs } = await rolledSinceOf(nodes, await storeNowMs(nodes.ofName(META)));
  const isWhole = entriesMs <= dayStartMs(monthBounds(month).first);
  if (archive && !isWhole)
    return { sales: await archive.sales(month), source: "archive", sinceMs: undefined, unread: undefined };
  const partitions = Array.from({ length: await partitionsOf(nodes) }, (_, partition) => ({ partition }));
  const reads = readsOfMost(nodes);
  const found = await reads.many<Record<string, string>, { partition: number }>(
    partitions,
    (pipe, { partition }) => pipe.hgetall(soldName(partition, month)),
  );
  const sinceMs = isWhole ? undefined : entriesMs;
  return { sales: sumOf(found), source: "redis", sinceMs, unread: reads.unread() };
}

function sumOf(records: readonly (Record<string, string> | undefined)[]): Sale[] {
  const sums = new Map<string, { grants: bigint; credits: bigint; paid?: bigint }>();
  for (const [field, number] of records.flatMap((record) => Object.entries(record ?? {}))) {
    const [, what, group] = /^(grants|credits|paid) (.*)$/s.exec(field) ?? [];
    if (what === undefined || group === undefined) continue;
    const sum = sums.get(group) ?? { grants: 0n, credits: 0n };
    sums.set(group, { ...sum, [what]: (sum[what as keyof typeof sum] ?? 0n) + BigInt(number) });
  }
  return [...sums]
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .map(([group, { grants, credits, paid }]) => {
      const [, kind, money = "", name = ""] = /^(\S+) (\S+) (.*)$/s.exec(group) ?? [];
      const currency = paid === undefined || money === "-" ? "" : money;
      return {
        ...{ kind: kind as GrantKind, package: name, currency },
        ...{ grants: Number(grants), credits: Number(credits) },
        amountPaid: currency === "" ? undefined : moneyOfUnits(paid!, currency),
      };
    });
}
