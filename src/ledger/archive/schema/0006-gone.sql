-- `gone`: the store has lost this account or key, as a failover or an older copy of Redis loses one. The views leave it out.
ALTER TABLE tollgate.account_versions ADD COLUMN gone boolean NOT NULL DEFAULT false;
ALTER TABLE tollgate.api_key_versions ADD COLUMN gone boolean NOT NULL DEFAULT false, ADD COLUMN partition integer;
UPDATE tollgate.api_key_versions version SET partition = account.partition
  FROM tollgate.account_versions account WHERE account.account_id = version.account_id;
-- All accounts and keys of a partition, by their ids.
CREATE INDEX account_versions_partition ON tollgate.account_versions (partition, account_id);
CREATE INDEX api_key_versions_partition ON tollgate.api_key_versions (partition, key_id);

CREATE OR REPLACE VIEW tollgate.accounts AS
  SELECT account_id, partition, created_at, settings, version FROM (
    SELECT DISTINCT ON (account_id) account_id, partition, created_at, settings, version, gone
    FROM tollgate.account_versions ORDER BY account_id, version DESC
  ) latest WHERE NOT gone;

CREATE OR REPLACE VIEW tollgate.api_keys AS
  SELECT key_id, account_id, sha256, tier, rate_limit, max_concurrent, daily_limit, created_at, expires_at, revoked_at,
    rotated_to, settings, version
  FROM (
    SELECT DISTINCT ON (key_id) key_id, account_id, sha256, tier, rate_limit, max_concurrent, daily_limit, created_at,
      expires_at, revoked_at, rotated_to, settings, version, gone
    FROM tollgate.api_key_versions ORDER BY key_id, version DESC
  ) latest WHERE NOT gone;
