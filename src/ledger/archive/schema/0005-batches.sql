-- A row for each batch without a ledger entry: requests, accounts, keys and audit have nothing else that says, after a commit
-- was lost, that it was there. `number` counts in a generation of the partition's record in Redis.
CREATE TABLE tollgate.batches (
  partition integer NOT NULL,
  generation text NOT NULL,
  number bigint NOT NULL,
  PRIMARY KEY (partition, generation, number)
);
