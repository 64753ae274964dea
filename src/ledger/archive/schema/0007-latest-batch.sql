-- Each batch has a row now, also one with ledger entries. Its number is larger than that of each batch of its partition before
-- it, in whatever generation. Only the latest row counts, and only that one stays: what is lost with a commit is lost with its
-- row, and the one before is back. The copier's user has no right to delete, so the table does it.
DELETE FROM tollgate.batches batch USING (
  SELECT partition, max(number) AS number FROM tollgate.batches GROUP BY partition
) latest WHERE latest.partition = batch.partition AND latest.number > batch.number;

CREATE FUNCTION tollgate.delete_earlier_batches() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  DELETE FROM tollgate.batches WHERE partition = NEW.partition AND number < NEW.number;
  RETURN NULL;
END $$;
CREATE TRIGGER latest_batch AFTER INSERT ON tollgate.batches
  FOR EACH ROW EXECUTE FUNCTION tollgate.delete_earlier_batches();
