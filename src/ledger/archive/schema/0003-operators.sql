-- Who made an entry by hand, and why an operator refunded a task. `reason` of an adjustment is the operator's text.
ALTER TABLE tollgate.ledger_rows ADD COLUMN by text, ADD COLUMN note text;
-- A refund is looked for by the task.
CREATE INDEX ledger_rows_task ON tollgate.ledger_rows (task_id) WHERE task_id IS NOT NULL;

CREATE OR REPLACE VIEW tollgate.ledger_entries AS
  SELECT partition, id, account_id, type, amount, balance_after, endpoint, reason, task_id, request_id, key_id, reference,
    at, previous, id_ms, id_number,
    CASE
      WHEN type = 'consume' AND (request_id IS NOT NULL OR task_id IS NOT NULL) THEN 'charge'
      WHEN request_id IS NOT NULL OR task_id IS NOT NULL THEN 'refund'
      WHEN type = 'recharge' AND reason IS NULL AND amount >= 0 THEN 'purchase'
      ELSE 'adjustment'
    END AS kind,
    by, note
  FROM tollgate.ledger_rows row
  WHERE NOT EXISTS (
    SELECT FROM tollgate.ledger_forks fork
    WHERE fork.partition = row.partition AND fork.fork > row.fork
      AND (row.id_ms, row.id_number) > (fork.after_ms, fork.after_number)
  );

-- What operators changed, each record once: the id names the partition and its place there.
ALTER TABLE tollgate.audit ADD COLUMN partition integer, ADD COLUMN by text, ADD COLUMN target text,
  ADD COLUMN id_ms bigint, ADD COLUMN id_number bigint;
CREATE INDEX audit_order ON tollgate.audit (partition, id_ms, id_number);
CREATE INDEX audit_account ON tollgate.audit (account_id, at);
CREATE INDEX audit_at ON tollgate.audit (at);
