/** Paragraphs about a command that its options do not say, by its words. Shown by `--help` and in docs/cli.md. */
export const NOTES: Readonly<Record<string, readonly string[]>> = {
  "keys import": [
    "Lines of a file, or of standard input with -, are `key`, `key,account` or `key,account,tier`; what a line leaves out, the options say for all. Blank lines, lines that begin with # and a heading that begins with `key` are passed over. With --credits each new key brings them to its account.",
    "It may be said again: a key that is there already, with the same account and tier, counts as known and nothing changes. Another account or tier, or a key that is revoked or expired, is a problem of its line, and makes the exit code 1. Problems name lines, never keys.",
  ],
  "keys list": [
    "A page of --limit keys says where the next one begins: in words on standard error, as `next` with --json. On a terminal times are told from now; in a pipe and with --json they are ISO 8601.",
  ],
  "keys rotate": [
    "The new key has the old one's account, tier, own limits and expiry. Limits belong to keys: window, slots and day of the new one begin empty, so until the old one ends the two together may use the limits twice. Credits belong to the account, and any of its keys may poll its tasks.",
    "A key is rotated once. `keys set OLD --expires` moves the end of the old one, `keys revoke OLD` ends it at once.",
  ],
  "ledger export": [
    "Entries come by partition, and within one by time. What gateways post meanwhile comes with this run or the next one, never with both: the cursor is the last entry of each partition.",
    "With --output and --cursor-file each entry is in the file exactly once, whenever the process ends: what counts is on disk together with its cursor, every second and at the end, and what was written after that is cut off and written again. The next run may name a new --output; the cursor goes on. Without --output the cursor moves when all has been handed to the reader, also after Ctrl-C; what a reader does with it is its own affair, so pass over an `id` that is there already.",
    "--since and --until are moments in the ledger's own order, so that spans side by side have each entry once. --since counts where the cursor says nothing yet.",
  ],
  "ledger verify": ["Exit code 1 when something does not add up."],
  "store accept": [
    "Gateways do not use a Redis that lacks ledger entries that it has confirmed. What they found is in the store; run it where the journal folder of a gateway is, and its files count too. Restore a newer copy if there is one: what is accepted cannot be taken back.",
    "`sent_again` are charges that gateways still hold. `lost` has each charge, grant and refund that is known to be lost, from the files of the journal folder: repeat the grants with their references, and bill or write off the charges that are not `sent_again`. `unknown_before` says before which time entries are missing in the list, `known_until` what its newest is. Until a store is accepted, nothing is written to it: commands that grant, make, change or revoke are refused.",
  ],
  "store show": ["Exit code 1 when something is missing."],
  doctor: [
    "Exit code 1 when something must be mended (FAIL, status `failed`); warnings alone leave it 0. With --json: `{ok, checks: [{name, ok, status, message, advice}]}`, where `status` is ok, warning or failed, and `advice` says what to do. It looks from where it runs: run it on the gateway's machine, with its environment.",
    "It writes one key to Redis that ends after a minute, loads the scripts, and asks the upstream for a task that does not exist, and posts to a path that takes no POST; neither makes a task.",
  ],
};
