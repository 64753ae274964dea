import type { ArchivedUsage } from "../ledger/account-usage.ts";
import type { ArchivedSales } from "../ledger/sales.ts";
import type { ArchivedStatements } from "../ledger/statements.ts";
import type { ArchivedTotal } from "../ledger/total-statement.ts";
import type { ArchivedSpenders } from "../operations/accounts/top-accounts.ts";
import type { ArchivedHistory } from "../operations/credits/account-history.ts";
import type { ArchivedTransactions } from "../operations/credits/transactions.ts";
import type { ArchivedRequests } from "../operations/tasks/task-lists.ts";
import { OperatorError } from "../records/operator-error.ts";
import type { RedisNodes } from "../redis/nodes.ts";
import { connectArchive } from "./archive-connection.ts";
import { archiveReason } from "./archive-reasons.ts";
import {
  createArchivedHistory,
  createArchivedRequests,
  createArchivedTransactions,
} from "./archived-history.ts";
import {
  archivedSales,
  archivedSpenders,
  archivedStatements,
  archivedTotal,
  archivedUsage,
  copiedUntilMs,
} from "./archived-usage.ts";
import { identifyFor } from "./identity.ts";
import type { ArchiveQuery } from "./tables.ts";

const STATEMENT_MS = 5000;
const CONNECTIONS_MAX = 2;

/** Reads of lists. @throws OperatorError `unavailable` while the archive cannot be used */
export interface ArchiveReads extends ArchivedUsage, ArchivedStatements {
  history: ArchivedHistory;
  requests: ArchivedRequests;
  transactions: ArchivedTransactions;
  spenders: ArchivedSpenders;
  sales: ArchivedSales;
  total: ArchivedTotal;
}

/** Separate connections: copying never waits for a list. */
export function openArchiveReads(url: string) {
  const archive = connectArchive(url, { statementMs: STATEMENT_MS, most: CONNECTIONS_MAX });
  return {
    of(nodes: RedisNodes): ArchiveReads {
      let identified: Promise<void> | undefined;
      const query: ArchiveQuery = async (text, values) => {
        try {
          identified ??= identifyFor(nodes, archive.query);
          await identified;
          return await archive.query(text, values);
        } catch (error) {
          const { why } = archiveReason(error as Error);
          throw new OperatorError(`the archive cannot be read now (${why}); try again later`, "unavailable");
        }
      };
      return {
        history: createArchivedHistory(query),
        requests: createArchivedRequests(query),
        transactions: createArchivedTransactions(query),
        spenders: (days, limit) => archivedSpenders(query, days, limit),
        sales: (month) => archivedSales(query, month),
        total: (month) => archivedTotal(query, month),
        usage: (selection) => archivedUsage(query, selection),
        statements: (accountIds, month) => archivedStatements(query, accountIds, month),
        copiedUntilMs: (partition) => copiedUntilMs(query, partition),
      };
    },
    close: archive.close,
  };
}
