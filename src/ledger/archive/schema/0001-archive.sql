-- What the copier writes are rows that never change: a user with INSERT and SELECT is enough. People read the views.

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

-- Every ledger entry that was ever copied. `fork`: how many forks its partition had had by then.
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

-- The ledger: the entries that count.
CREATE VIEW tollgate.ledger_entries AS
  SELECT partition, id, account_id, type, amount, balance_after, endpoint, reason, task_id, request_id, key_id, reference,
    at, previous, id_ms, id_number
  FROM tollgate.ledger_rows row
  WHERE NOT EXISTS (
    SELECT FROM tollgate.ledger_forks fork
    WHERE fork.partition = row.partition AND fork.fork > row.fork
      AND (row.id_ms, row.id_number) > (fork.after_ms, fork.after_number)
  );

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

CREATE VIEW tollgate.requests AS
  SELECT DISTINCT ON (request_id) request_id, account_id, key_id, endpoint, price, status, ended_by, admitted_at, bound_at,
    finished_at, task_id, is_uncollected
  FROM tollgate.request_rows ORDER BY request_id, finished_at DESC, copied_at DESC;

-- Each change of an account or key is a row; `version` is when it was read, Unix ms.
CREATE TABLE tollgate.account_versions (
  account_id text NOT NULL,
  version bigint NOT NULL,
  partition integer NOT NULL,
  created_at timestamptz,
  -- All other fields of the record that people set.
  settings jsonb NOT NULL DEFAULT '{}',
  PRIMARY KEY (account_id, version)
);
CREATE VIEW tollgate.accounts AS
  SELECT DISTINCT ON (account_id) account_id, partition, created_at, settings, version
  FROM tollgate.account_versions ORDER BY account_id, version DESC;

-- Keys by their SHA-256; nobody can read a key back.
CREATE TABLE tollgate.api_key_versions (
  key_id text NOT NULL,
  version bigint NOT NULL,
  account_id text NOT NULL,
  sha256 text NOT NULL,
  tier text NOT NULL,
  rate_limit bigint,
  max_concurrent bigint,
  daily_limit bigint,
  created_at timestamptz,
  expires_at timestamptz,
  revoked_at timestamptz,
  rotated_to text,
  settings jsonb NOT NULL DEFAULT '{}',
  PRIMARY KEY (key_id, version)
);
CREATE VIEW tollgate.api_keys AS
  SELECT DISTINCT ON (key_id) key_id, account_id, sha256, tier, rate_limit, max_concurrent, daily_limit, created_at,
    expires_at, revoked_at, rotated_to, settings, version
  FROM tollgate.api_key_versions ORDER BY key_id, version DESC;

-- Who changed what, once gateways keep that.
CREATE TABLE tollgate.audit (
  id text PRIMARY KEY,
  at timestamptz NOT NULL,
  token_id text,
  label text,
  action text NOT NULL,
  account_id text,
  request_id text,
  before jsonb,
  after jsonb
);

-- What each account owns.
CREATE VIEW tollgate.balances AS
  SELECT account_id, sum(amount)::bigint AS balance, (array_agg(id ORDER BY id_ms DESC, id_number DESC))[1] AS last_entry,
    max(at) AS last_entry_at
  FROM tollgate.ledger_entries GROUP BY account_id;
