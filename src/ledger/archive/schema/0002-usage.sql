-- What an entry is to an accountant: a charge or a refund of a request, credits that were bought, or a correction by hand.
CREATE OR REPLACE VIEW tollgate.ledger_entries AS
  SELECT partition, id, account_id, type, amount, balance_after, endpoint, reason, task_id, request_id, key_id, reference,
    at, previous, id_ms, id_number,
    CASE
      WHEN type = 'consume' AND (request_id IS NOT NULL OR task_id IS NOT NULL) THEN 'charge'
      WHEN request_id IS NOT NULL OR task_id IS NOT NULL THEN 'refund'
      WHEN type = 'recharge' AND reason IS NULL AND amount >= 0 THEN 'purchase'
      ELSE 'adjustment'
    END AS kind
  FROM tollgate.ledger_rows row
  WHERE NOT EXISTS (
    SELECT FROM tollgate.ledger_forks fork
    WHERE fork.partition = row.partition AND fork.fork > row.fork
      AND (row.id_ms, row.id_number) > (fork.after_ms, fork.after_number)
  );

-- In this form a condition on the account reaches the table.
CREATE OR REPLACE VIEW tollgate.requests AS
  SELECT request_id, account_id, key_id, endpoint, price, status, ended_by, admitted_at, bound_at, finished_at, task_id,
    is_uncollected
  FROM tollgate.request_rows row
  WHERE NOT EXISTS (
    SELECT FROM tollgate.request_rows later
    WHERE later.request_id = row.request_id AND later.status <> row.status
      AND (later.finished_at, later.copied_at, later.status) > (row.finished_at, row.copied_at, row.status)
  );

-- By UTC day. A charge and a refund count on the day of their ledger entry, a completed or failed task on the day when it ended.
-- `seconds` of the videos that were asked for: not known, since no record has them yet.
CREATE VIEW tollgate.usage_daily AS
  SELECT account_id, key_id, endpoint, day, sum(requests)::bigint AS requests, sum(credits)::bigint AS credits,
    sum(refunds)::bigint AS refunds, sum(completed)::bigint AS completed, sum(failed)::bigint AS failed, NULL::bigint AS seconds
  FROM (
    SELECT account_id, key_id, endpoint, (at AT TIME ZONE 'UTC')::date AS day,
      CASE kind WHEN 'charge' THEN 1 ELSE 0 END AS requests, CASE kind WHEN 'charge' THEN -amount ELSE 0 END AS credits,
      CASE kind WHEN 'refund' THEN amount ELSE 0 END AS refunds, 0 AS completed, 0 AS failed
    FROM tollgate.ledger_entries
    WHERE kind IN ('charge', 'refund')
    UNION ALL
    SELECT account_id, key_id, endpoint, (finished_at AT TIME ZONE 'UTC')::date, 0, 0, 0,
      CASE status WHEN 'completed' THEN 1 ELSE 0 END, CASE status WHEN 'failed' THEN 1 ELSE 0 END
    FROM tollgate.requests
    WHERE status IN ('completed', 'failed')
  ) facts
  GROUP BY account_id, key_id, endpoint, day;

-- By UTC month, for months with entries: opening + purchases - charges + refunds + adjustments = closing.
CREATE VIEW tollgate.statements AS
  SELECT account_id, month, (sum(total) OVER months - total)::bigint AS opening, purchases, charges, refunds, adjustments,
    (sum(total) OVER months)::bigint AS closing
  FROM (
    SELECT account_id, date_trunc('month', at AT TIME ZONE 'UTC')::date AS month, sum(amount) AS total,
      coalesce(sum(amount) FILTER (WHERE kind = 'purchase'), 0)::bigint AS purchases,
      coalesce(-sum(amount) FILTER (WHERE kind = 'charge'), 0)::bigint AS charges,
      coalesce(sum(amount) FILTER (WHERE kind = 'refund'), 0)::bigint AS refunds,
      coalesce(sum(amount) FILTER (WHERE kind = 'adjustment'), 0)::bigint AS adjustments
    FROM tollgate.ledger_entries
    GROUP BY 1, 2
  ) monthly
  WINDOW months AS (PARTITION BY account_id ORDER BY month);
