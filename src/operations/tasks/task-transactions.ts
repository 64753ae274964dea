import { compareIds } from "../../records/entry-ids.ts";
import type { LedgerEntry } from "../../records/ledger-entries.ts";
import { accountNames } from "../../records/names.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import type { HistoryFilter } from "../../scripts/history.ts";
import { type ArchivedHistory, readHistory } from "../credits/account-history.ts";
import { transactionOfReference } from "../credits/named-entries.ts";
import type { ReadArchived } from "../credits/references.ts";
import type { FoundRequest } from "./operator-tasks.ts";

/** Ids of entries follow the clock of the server, which may be ahead of the time of the entry. */
const SLACK_MS = 2000;
const ENTRIES_MAX = 1000;

interface LookUps {
  history?: ArchivedHistory | undefined;
  readArchived?: ReadArchived | undefined;
}

/**
 * The ledger entries of a request, oldest first: its charge, refund, correction, and the charge after a late completion. They are
 * read where the record of the request says that they are, so a long ledger costs no more than a short one. @throws OperatorError
 * `unavailable` if the archive is needed and unavailable
 */
export async function transactionsOfTask(
  nodes: RedisNodes,
  { requestId, partition, record }: FoundRequest,
  { history, readArchived }: LookUps,
): Promise<LedgerEntry[]> {
  const { account_id: accountId = "", bound_at: boundAt, finished_at: finishedAt } = record;
  const redis = nodes.of(partition);
  const between = async (filter: HistoryFilter & { toMs: number }) => {
    const position = `(${filter.toMs + SLACK_MS}-0`;
    const { entries } = await readHistory({
      ...{ redis, partition, accountId, filter, position },
      ...{ limit: ENTRIES_MAX, archive: history },
    });
    return entries.filter((entry) => entry.requestId === requestId);
  };
  const at = (time: string | undefined) =>
    time === undefined ? [] : between({ fromMs: Number(time), toMs: Number(time) + 1 });
  const refundedBefore = async () => {
    const wanted = ["recharge/refund"];
    return record.charged_again === undefined
      ? []
      : between({ wanted, fromMs: Number(boundAt), toMs: Number(finishedAt) });
  };
  const byOperator = async () => {
    const reference = await redis.hget(accountNames(partition, accountId).refunds, requestId);
    const entry =
      reference === null
        ? undefined
        : await transactionOfReference(nodes, accountId, reference, readArchived);
    return entry ? [entry] : [];
  };
  const found = await Promise.all([at(boundAt), at(finishedAt), refundedBefore(), byOperator()]);
  const byId = new Map(found.flat().map((entry) => [entry.streamId, entry]));
  return [...byId.values()].sort((a, b) => compareIds(a.streamId, b.streamId));
}
