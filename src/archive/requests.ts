import type { ArchivedRequests } from "../operations/tasks/task-lists.ts";
import type { TaskView } from "../operations/tasks/task-view.ts";
import type { ArchiveQuery } from "./tables.ts";

const REQUESTS = `
  SELECT request_id, status, admitted_at, bound_at, finished_at, EXISTS (
    SELECT FROM tollgate.ledger_entries entry WHERE entry.request_id = request.request_id AND entry.type = 'recharge'
  ) AS refunded
  FROM tollgate.requests request WHERE request_id = ANY ($1::text[])`;

interface RequestRow {
  request_id: string;
  status: string;
  admitted_at: Date | null;
  bound_at: Date | null;
  finished_at: Date | null;
  refunded: boolean;
}

export const createArchivedRequests =
  (query: ArchiveQuery): ArchivedRequests =>
  async (requestIds) => {
    const rows = await query<RequestRow>(REQUESTS, [requestIds]);
    return new Map(rows.map((row) => [row.request_id, ended(row)]));
  };

const ended = (row: RequestRow) => ({
  status: row.status as TaskView["status"],
  createdAtMs: row.admitted_at?.getTime(),
  boundAtMs: row.bound_at?.getTime(),
  finishedAtMs: row.finished_at?.getTime(),
  refunded: row.refunded,
});
