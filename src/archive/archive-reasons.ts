import { OtherArchiveError } from "./archive-record.ts";
import { ArchiveError } from "./migrations.ts";

interface ArchiveReason {
  why: string;
  advice: string;
}

const ADDRESS = "see that it runs, and that this machine reaches the host and port of ARCHIVE_URL";
const RIGHTS =
  "run `tollgate archive migrate` with the owner's ARCHIVE_URL, and give this user the GRANTs of docs/archive.md";
const TLS = "see `sslmode` and `sslrootcert` in docs/archive.md";
const FILES = "correct `sslrootcert`, `sslcert` or `sslkey` in ARCHIVE_URL";
const SLOW = "see its load and locks (pg_stat_activity); copying goes on by itself";

/** Key: SQLSTATE, Node's error code, or its prefix. */
const REASONS: Readonly<Record<string, ArchiveReason>> = {
  ECONNREFUSED: { why: "nobody listens there", advice: ADDRESS },
  ECONNRESET: { why: "it closed the connection", advice: ADDRESS },
  ETIMEDOUT: { why: "it does not answer", advice: ADDRESS },
  EHOSTUNREACH: { why: "its host cannot be reached", advice: ADDRESS },
  ENOTFOUND: { why: "no such host name", advice: "correct the host in ARCHIVE_URL, or the DNS" },
  EAI_AGAIN: { why: "the DNS does not answer", advice: "see the DNS of this machine" },
  ENOENT: { why: "a file that ARCHIVE_URL names is not there", advice: FILES },
  EACCES: { why: "a file that ARCHIVE_URL names cannot be read", advice: FILES },
  "08": { why: "the connection failed", advice: ADDRESS },
  "08P01": {
    why: "a pooler before it refuses the connection",
    advice: "set up the pooler as in docs/archive.md, or name PostgreSQL itself in ARCHIVE_URL",
  },
  "28": { why: "it refuses the user", advice: "correct user and password in ARCHIVE_URL; see pg_hba.conf" },
  "3D": { why: "there is no such database", advice: "create it, or correct the name in ARCHIVE_URL" },
  "42501": { why: "the user has too few rights", advice: RIGHTS },
  "42P01": { why: "a table is missing", advice: RIGHTS },
  "25006": {
    why: "it takes no writes: it is a standby, or set to read-only",
    advice: "name the primary in ARCHIVE_URL",
  },
  "53100": { why: "its disk is full", advice: "make room for it; copying goes on by itself" },
  "53300": { why: "it has too many connections", advice: "raise max_connections; each gateway takes two" },
  "57014": { why: "it takes too long", advice: SLOW },
  "55P03": { why: "another migration takes too long", advice: SLOW },
  "57": {
    why: "it is starting, stopping, or ended the connection",
    advice: "see its log; copying goes on by itself",
  },
  "58": { why: "its disk or system fails", advice: "see its log" },
};

/** Never contains the URL. */
export function archiveReason(error: unknown): ArchiveReason {
  if (error instanceof ArchiveError) return { why: error.message, advice: error.advice };
  if (error instanceof OtherArchiveError)
    return {
      why: "the store is copied to another archive",
      advice: "set ARCHIVE_URL to that one; to give it up, run `tollgate archive detach` first",
    };
  const { code, message } = firstOf(error);
  const known = REASONS[code] ?? REASONS[code.slice(0, 2)];
  if (known) return { why: `${known.why} (${message})`, advice: known.advice };
  if (/password must be a string/.test(message))
    return { why: "it asks for a password, and there is none", advice: "set the password in ARCHIVE_URL" };
  if (/timeout|terminated|not queryable|pool after calling end/i.test(message))
    return { why: `it does not answer (${message})`, advice: ADDRESS };
  if (/certificate|self.signed|SSL|TLS/i.test(`${code} ${message}`)) return { why: message, advice: TLS };
  return { why: message, advice: "see its log" };
}

/** A host with several addresses fails with an AggregateError. */
function firstOf(error: unknown): { code: string; message: string } {
  const one = error instanceof AggregateError ? error.errors[0] : error;
  const { code = "", message = String(one) } = (one ?? {}) as { code?: string; message?: string };
  return { code: String(code), message };
}
