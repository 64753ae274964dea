import type { Static } from "typebox";
import { duration, ms, section } from "../setting-types.ts";

export const archiveSchema = section("The archive in PostgreSQL, which is used if ARCHIVE_URL is set.", {
  keep: duration(
    "7d",
    "0s",
    "3650d",
    "How long ledger entries stay in Redis once the archive has them; 0s removes them at once.",
  ),
  interval: duration("1s", "100ms", "1m", "How often a gateway looks for what the archive has not got."),
});

export const toArchiveConfig = (archive: Static<typeof archiveSchema>, url: string | undefined) => ({
  /** May contain a password: print it only through `redact`. */
  url,
  keepMs: ms(archive.keep),
  intervalMs: ms(archive.interval),
});
