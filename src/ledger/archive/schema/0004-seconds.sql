-- `seconds`: how long the completed tasks ran, each in whole seconds, as in Redis.
CREATE OR REPLACE VIEW tollgate.usage_daily AS
  SELECT account_id, key_id, endpoint, day, sum(requests)::bigint AS requests, sum(credits)::bigint AS credits,
    sum(refunds)::bigint AS refunds, sum(completed)::bigint AS completed, sum(failed)::bigint AS failed,
    sum(seconds)::bigint AS seconds
  FROM (
    SELECT account_id, key_id, endpoint, (at AT TIME ZONE 'UTC')::date AS day,
      CASE kind WHEN 'charge' THEN 1 ELSE 0 END AS requests, CASE kind WHEN 'charge' THEN -amount ELSE 0 END AS credits,
      CASE kind WHEN 'refund' THEN amount ELSE 0 END AS refunds, 0 AS completed, 0 AS failed, 0::bigint AS seconds
    FROM tollgate.ledger_entries
    WHERE kind IN ('charge', 'refund')
    UNION ALL
    SELECT account_id, key_id, endpoint, (finished_at AT TIME ZONE 'UTC')::date, 0, 0, 0,
      CASE status WHEN 'completed' THEN 1 ELSE 0 END, CASE status WHEN 'failed' THEN 1 ELSE 0 END,
      CASE WHEN status = 'completed' AND bound_at IS NOT NULL
        THEN floor(greatest(0, extract(epoch FROM finished_at - bound_at)) + 0.5)::bigint ELSE 0 END
    FROM tollgate.requests
    WHERE status IN ('completed', 'failed')
  ) facts
  GROUP BY account_id, key_id, endpoint, day;
