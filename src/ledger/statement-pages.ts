import { calendarProblem, isMonth } from "../domain/moments.ts";
import { listAccounts } from "../operations/accounts/account-lists.ts";
import { requireAccount } from "../operations/accounts/accounts.ts";
import { OperatorError } from "../records/operator-error.ts";
import type { RedisNodes } from "../redis/nodes.ts";
import type { Unread } from "../redis/partition-reads.ts";
import { type AccountStatement, type ArchivedStatements, accountStatements } from "./account-statements.ts";

/** @throws OperatorError `invalid_month`, `not_found`; `unavailable` if that would read too much of Redis */
export async function readStatement(
  nodes: RedisNodes,
  accountId: string,
  month: string,
  archive?: ArchivedStatements,
): Promise<AccountStatement> {
  requireMonth(month);
  await requireAccount(nodes, accountId);
  const [statement] = await accountStatements(nodes, [accountId], month, archive);
  return statement!;
}

/** All accounts, in the order of their ids. @param own the only visible accounts; undefined: all */
export async function pageStatements(
  nodes: RedisNodes,
  { month, ...page }: { month: string; cursor?: string | undefined; limit: number },
  own: readonly string[] | undefined,
  archive?: ArchivedStatements,
): Promise<{ statements: AccountStatement[]; next: string | undefined; unread: Unread | undefined }> {
  requireMonth(month);
  const { accounts, next, unread } = await listAccounts(nodes, page, own);
  const ids = accounts.map(({ accountId }) => accountId);
  return { statements: await accountStatements(nodes, ids, month, archive), next, unread };
}

/** @throws OperatorError `invalid_month` */
export function requireMonth(month: string): void {
  if (isMonth(month)) return;
  const problem = calendarProblem(month);
  throw new OperatorError(
    `month must be a month such as 2026-10${problem === undefined ? "" : `; ${problem}`}`,
    "invalid_month",
    "month",
  );
}
