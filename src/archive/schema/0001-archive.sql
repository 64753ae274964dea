-- Rows never change: the copier needs INSERT and SELECT only. People read the views.

-- IF NOT EXISTS would need the right to create schemas even where this one exists.
DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'tollgate') THEN CREATE SCHEMA tollgate; END IF;
END $$;

CREATE TABLE tollgate.migrations (
  step text PRIMARY KEY,
  taken_at timestamptz NOT NULL DEFAULT now()
);

-- Whose archive this is: one row.
CREATE TABLE tollgate.archive (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  archive_id text NOT NULL DEFAULT gen_random_uuid()::text,
  store_id text NOT NULL,
  since timestamptz NOT NULL DEFAULT now()
);

-- Every ledger entry that was ever copied. `fork`: how many forks its partition had had by then. `by` made it by hand; `note` is
-- why an operator refunded a task, and `reason` of an adjustment the operator's text. `kind` is said by entries that nothing else
-- tells apart: trial, goodwill, reversal. `details` is what else Redis has of it, JSON as it is there; the columns from `package` to
-- `of_reference` are taken from it.
CREATE TABLE tollgate.ledger_rows (
  partition integer NOT NULL,
  id text NOT NULL,
  fork integer NOT NULL DEFAULT 0,
  account_id text NOT NULL,
  type text NOT NULL,
  amount bigint NOT NULL,
  balance_after bigint NOT NULL,
  endpoint text,
  reason text,
  task_id text,
  request_id text,
  key_id text,
  reference text,
  by text,
  note text,
  kind text,
  details text,
  package text,
  package_price numeric,
  package_currency text,
  amount_paid numeric,
  currency text,
  of_reference text,
  previous text,
  at timestamptz NOT NULL,
  copied_at timestamptz NOT NULL DEFAULT now(),
  -- An id is "milliseconds-number"; as a text it has no order.
  id_ms bigint GENERATED ALWAYS AS (split_part(id, '-', 1)::bigint) STORED,
  id_number bigint GENERATED ALWAYS AS (split_part(id, '-', 2)::bigint) STORED,
  PRIMARY KEY (partition, id, fork)
);
-- A request is charged once and refunded once.
CREATE UNIQUE INDEX ledger_rows_request ON tollgate.ledger_rows (request_id, type, partition, fork)
  WHERE request_id IS NOT NULL;
CREATE INDEX ledger_rows_order ON tollgate.ledger_rows (partition, id_ms, id_number);
CREATE INDEX ledger_rows_account ON tollgate.ledger_rows (account_id, at);
CREATE INDEX ledger_rows_at ON tollgate.ledger_rows (at);
CREATE INDEX ledger_rows_reference ON tollgate.ledger_rows (account_id, reference) WHERE reference IS NOT NULL;
-- A refund is looked for by the task.
CREATE INDEX ledger_rows_task ON tollgate.ledger_rows (task_id) WHERE task_id IS NOT NULL;

-- A failover or an old dump lost what Redis had after `after`. Rows that had been copied by then do not count any more.
CREATE TABLE tollgate.ledger_forks (
  partition integer NOT NULL,
  fork integer NOT NULL,
  after text NOT NULL,
  until text NOT NULL,
  found_at timestamptz NOT NULL DEFAULT now(),
  after_ms bigint GENERATED ALWAYS AS (split_part(after, '-', 1)::bigint) STORED,
  after_number bigint GENERATED ALWAYS AS (split_part(after, '-', 2)::bigint) STORED,
  PRIMARY KEY (partition, fork)
);

-- The store's ledger had lost what comes after `after` up to `until`, itself included, when the archive lacked it: a backup of the
-- archive was restored, or it was begun behind what had left Redis. Nobody has these entries.
CREATE TABLE tollgate.ledger_gaps (
  partition integer NOT NULL,
  after text NOT NULL,
  until text NOT NULL,
  found_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (partition, until)
);

-- The ledger: the entries that count. `kind` is what one is to an accountant: a charge or a refund of a request, credits that were
-- bought or given (purchase, trial, goodwill), what was taken back of such a grant (reversal), or a correction by hand.
CREATE VIEW tollgate.ledger_entries AS
  SELECT partition, id, account_id, type, amount, balance_after, endpoint, reason, task_id, request_id, key_id, reference,
    at, previous, id_ms, id_number,
    CASE
      WHEN row.kind IS NOT NULL THEN row.kind
      WHEN type = 'consume' AND (request_id IS NOT NULL OR task_id IS NOT NULL) THEN 'charge'
      WHEN request_id IS NOT NULL OR task_id IS NOT NULL THEN 'refund'
      WHEN type = 'recharge' AND reason IS NULL AND amount >= 0 THEN 'purchase'
      ELSE 'adjustment'
    END AS kind,
    by, note, details, package, package_price, package_currency, amount_paid, currency, of_reference
  FROM tollgate.ledger_rows row
  WHERE NOT EXISTS (
    SELECT FROM tollgate.ledger_forks fork
    WHERE fork.partition = row.partition AND fork.fork > row.fork
      AND (row.id_ms, row.id_number) > (fork.after_ms, fork.after_number)
  );

-- The latest batch of each partition: after a commit was lost, it says whether the batch was there. `number` counts in a generation
-- of the partition's record in Redis, and is larger than that of each batch of its partition before it, in whatever generation.
-- A lost commit loses its row, and the one before is back. The copier's user has no right to delete, so the
-- table deletes the earlier ones.
CREATE TABLE tollgate.batches (
  partition integer NOT NULL,
  generation text NOT NULL,
  number bigint NOT NULL,
  PRIMARY KEY (partition, generation, number)
);
CREATE FUNCTION tollgate.delete_earlier_batches() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  DELETE FROM tollgate.batches WHERE partition = NEW.partition AND number < NEW.number;
  RETURN NULL;
END $$;
CREATE TRIGGER latest_batch AFTER INSERT ON tollgate.batches
  FOR EACH ROW EXECUTE FUNCTION tollgate.delete_earlier_batches();

-- Ended requests. One that was void and whose task came later has two rows.
CREATE TABLE tollgate.request_rows (
  request_id text NOT NULL,
  account_id text NOT NULL,
  key_id text,
  endpoint text,
  price bigint,
  status text NOT NULL,
  ended_by text,
  task_id text,
  is_uncollected boolean NOT NULL DEFAULT false,
  admitted_at timestamptz,
  bound_at timestamptz,
  finished_at timestamptz,
  copied_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (request_id, status)
);
CREATE INDEX request_rows_account ON tollgate.request_rows (account_id, finished_at);
CREATE INDEX request_rows_finished ON tollgate.request_rows (finished_at);

-- In this form a condition on the account reaches the table.
CREATE VIEW tollgate.requests AS
  SELECT request_id, account_id, key_id, endpoint, price, status, ended_by, admitted_at, bound_at, finished_at, task_id,
    is_uncollected
  FROM tollgate.request_rows row
  WHERE NOT EXISTS (
    SELECT FROM tollgate.request_rows later
    WHERE later.request_id = row.request_id AND later.status <> row.status
      AND (later.finished_at, later.copied_at, later.status) > (row.finished_at, row.copied_at, row.status)
  );

-- Each change of an account or key is a row; `version` is when it was read, Unix ms. `gone`: the store has lost this account or
-- key, as a failover or an older copy of Redis loses one. The views leave it out.
CREATE TABLE tollgate.account_versions (
  account_id text NOT NULL,
  version bigint NOT NULL,
  partition integer NOT NULL,
  created_at timestamptz,
  -- All other fields of the record that people set.
  settings jsonb NOT NULL DEFAULT '{}',
  gone boolean NOT NULL DEFAULT false,
  PRIMARY KEY (account_id, version)
);
-- All accounts of a partition, by their ids.
CREATE INDEX account_versions_partition ON tollgate.account_versions (partition, account_id);
CREATE VIEW tollgate.accounts AS
  SELECT account_id, partition, created_at, settings, version FROM (
    SELECT DISTINCT ON (account_id) account_id, partition, created_at, settings, version, gone
    FROM tollgate.account_versions ORDER BY account_id, version DESC
  ) latest WHERE NOT gone;

-- Keys by their SHA-256; nobody can read a key back.
CREATE TABLE tollgate.api_key_versions (
  key_id text NOT NULL,
  version bigint NOT NULL,
  partition integer NOT NULL,
  account_id text NOT NULL,
  sha256 text NOT NULL,
  tier text NOT NULL,
  -- Its own, by their names; the values are texts.
  limits jsonb NOT NULL DEFAULT '{}',
  created_at timestamptz,
  expires_at timestamptz,
  revoked_at timestamptz,
  rotated_to text,
  settings jsonb NOT NULL DEFAULT '{}',
  gone boolean NOT NULL DEFAULT false,
  PRIMARY KEY (key_id, version)
);
-- All keys of a partition, by their ids.
CREATE INDEX api_key_versions_partition ON tollgate.api_key_versions (partition, key_id);
CREATE VIEW tollgate.api_keys AS
  SELECT key_id, account_id, sha256, tier, limits, created_at, expires_at, revoked_at,
    rotated_to, settings, version
  FROM (
    SELECT DISTINCT ON (key_id) key_id, account_id, sha256, tier, limits, created_at,
      expires_at, revoked_at, rotated_to, settings, version, gone
    FROM tollgate.api_key_versions ORDER BY key_id, version DESC
  ) latest WHERE NOT gone;

-- Changes by operators, each record once: the id names the partition and its place there.
CREATE TABLE tollgate.audit (
  id text PRIMARY KEY,
  at timestamptz NOT NULL,
  token_id text,
  label text,
  action text NOT NULL,
  account_id text,
  request_id text,
  before jsonb,
  after jsonb,
  partition integer,
  by text,
  target text,
  id_ms bigint,
  id_number bigint
);
CREATE INDEX audit_order ON tollgate.audit (partition, id_ms, id_number);
CREATE INDEX audit_account ON tollgate.audit (account_id, at);
CREATE INDEX audit_at ON tollgate.audit (at);

-- The balance of each account.
CREATE VIEW tollgate.balances AS
  SELECT account_id, sum(amount)::bigint AS balance, (array_agg(id ORDER BY id_ms DESC, id_number DESC))[1] AS last_entry,
    max(at) AS last_entry_at
  FROM tollgate.ledger_entries GROUP BY account_id;

-- By UTC day. A charge and a refund count on the day of their ledger entry, a completed or failed task on the day when it ended.
-- `seconds`: how long the completed tasks ran, each in whole seconds, as in Redis.
CREATE VIEW tollgate.usage_daily AS
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

-- By UTC month, for months with entries: opening + purchases + trials + goodwill - charges + refunds + adjustments - reversals =
-- closing. `amounts_paid` has a decimal by currency, as a text.
CREATE VIEW tollgate.statements AS
  SELECT account_id, month, (sum(total) OVER months - total)::bigint AS opening, purchases, trials, goodwill, charges, refunds,
    adjustments, reversals, (sum(total) OVER months)::bigint AS closing, amounts_paid
  FROM (
    SELECT account_id, month, sum(total) AS total, sum(purchases)::bigint AS purchases, sum(trials)::bigint AS trials,
      sum(goodwill)::bigint AS goodwill, sum(charges)::bigint AS charges, sum(refunds)::bigint AS refunds,
      sum(adjustments)::bigint AS adjustments, sum(reversals)::bigint AS reversals,
      coalesce(jsonb_object_agg(currency, paid::text) FILTER (WHERE currency IS NOT NULL), '{}') AS amounts_paid
    FROM (
      SELECT account_id, date_trunc('month', at AT TIME ZONE 'UTC')::date AS month, currency, sum(amount) AS total,
        coalesce(sum(amount) FILTER (WHERE kind = 'purchase'), 0) AS purchases,
        coalesce(sum(amount) FILTER (WHERE kind = 'trial'), 0) AS trials,
        coalesce(sum(amount) FILTER (WHERE kind = 'goodwill'), 0) AS goodwill,
        coalesce(-sum(amount) FILTER (WHERE kind = 'charge'), 0) AS charges,
        coalesce(sum(amount) FILTER (WHERE kind = 'refund'), 0) AS refunds,
        coalesce(sum(amount) FILTER (WHERE kind = 'adjustment'), 0) AS adjustments,
        coalesce(-sum(amount) FILTER (WHERE kind = 'reversal'), 0) AS reversals,
        sum(amount_paid) AS paid
      FROM tollgate.ledger_entries
      GROUP BY 1, 2, 3
    ) by_currency
    GROUP BY 1, 2
  ) monthly
  WINDOW months AS (PARTITION BY account_id ORDER BY month);
