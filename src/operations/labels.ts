import { accountNames, keyNames, partitionOf } from "../records/names.ts";
import { readsOfMost } from "../redis/partition-reads.ts";
import { partitionsOf, type RedisNodes } from "../redis/store-facts.ts";
import type { AuditRecord } from "./access/audit.ts";

interface Labels {
  accountLabel: string | null;
  keyLabel: string | null;
}

/** With the labels of the account, and of the key if one is the target. */
export async function auditWithLabels(
  nodes: RedisNodes,
  records: readonly AuditRecord[],
): Promise<(AuditRecord & Labels)[]> {
  const rows = records.map((record) => ({
    ...record,
    keyId: record.action.startsWith("key.") ? record.target : "",
  }));
  return withLabels(nodes, rows, ({ accountId }) => accountId);
}

/** Labels of the accounts and keys of a page; null for those without a label, and for those whose server is away. */
export async function withLabels<Row extends { keyId: string }>(
  nodes: RedisNodes,
  rows: readonly Row[],
  accountOf: (row: Row) => string,
): Promise<(Row & Labels)[]> {
  const partitions = await partitionsOf(nodes);
  const names = rows.flatMap((row) => {
    const partition = partitionOf(accountOf(row), partitions);
    const { account } = accountNames(partition, accountOf(row));
    return [account, keyNames(partition, row.keyId).key].map((name) => ({ partition, name }));
  });
  const labels = await readsOfMost(nodes).many<string | null, (typeof names)[number]>(
    names,
    (pipe, { name }) => pipe.hget(name, "label"),
  );
  return rows.map((row, at) => ({
    ...row,
    accountLabel: labels[2 * at] || null,
    keyLabel: labels[2 * at + 1] || null,
  }));
}
