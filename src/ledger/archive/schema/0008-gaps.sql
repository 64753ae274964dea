-- The store's ledger had lost what comes after `after` up to `until`, itself included, when the archive lacked it: a backup of the
-- archive was restored, or it was begun behind what had left Redis. Nobody has these entries.
CREATE TABLE tollgate.ledger_gaps (
  partition integer NOT NULL,
  after text NOT NULL,
  until text NOT NULL,
  found_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (partition, until)
);
