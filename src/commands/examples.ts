const IN_CSV =
  "In CSV, a text that begins with =, +, -, @, a tab or a carriage return is led by an apostrophe, so that no spreadsheet takes it for a formula. Numbers are as they are.";

/** Paragraphs about commands, by the name of the command: what their options do not say. In `--help` and docs/cli.md. */
export const NOTES: Readonly<Record<string, readonly string[]>> = {
  "keys import": [
    "Lines of a file, or of standard input with -, are `key`, `key,account` or `key,account,tier`; what a line leaves out comes from the options. Blank lines, lines that begin with # and a heading that begins with `key` are skipped. With --credits each new key adds them to its account.",
    "You can run it again: a key that exists already, with the same account and tier, counts as known and is not changed. Another account or tier, or a key that is revoked or expired, is a problem of its line; then the exit code is 1. Problems name lines, never keys.",
  ],
  "keys list": [
    "After a page of --limit keys it prints where the next page begins: as a sentence on standard error, or as `next` with --json. On a terminal times are relative to now; in a pipe and with --json they are ISO 8601.",
  ],
  "keys rotate": [
    "The new key has the old one's account, tier, own limits, monthly credits, label, expiry, endpoints and addresses. Limits belong to keys: window, slots and day of the new key begin empty, so until the old key expires the two together can use the limits twice. Monthly credits count both. Credits belong to the account, and any of its keys can poll its tasks.",
    "A key can be rotated once. `keys set OLD --expires` changes when the old key expires, `keys revoke OLD` revokes it at once.",
  ],
  "tasks refund": [
    "The task must have finished and been charged; `tasks release` ends one that has not. It is found by its task or request id, also long after its record was deleted: then by the ledger, with ARCHIVE_URL by the archive. A task is refunded once, whoever does it. The same reference again changes nothing.",
  ],
  "credits reverse": [
    "Takes at most what was not reversed of the grant before, and what the account can spend: spent and held credits stay. The same reference reverses once. Statements list reversals apart.",
  ],
  "credits adjust": [
    "An adjustment is neither a purchase nor a refund: statements list it apart. One downwards takes at most what can be spent, so open holds stay covered.",
  ],
  "tokens create": [
    "The token is shown once; the store keeps its SHA-256. `docs/management.md` describes the API.",
  ],
  audit: [
    "Newest first. Each change by an operator has one record, written in the same step: by the command line (`cli <name>`), by a token of the management API (`<token id> <label>`), by ADMIN_TOKEN (`admin_token`) or in the console. Records are kept for 90 days.",
  ],
  "archive restore": [
    "Stop all gateways, and let REDIS_URL name an empty Redis with `store.partitions` as it was. Until the restore has ended, gateways refuse that Redis; after an interruption, empty it and begin again.",
    "It writes accounts, keys with their limits and times, the ledger with balances and references of grants, and charged tasks that had not ended: gateways poll those. Windows and counts of the day begin anew, and open holds are gone. Results of tasks that had ended cannot be polled any more, and an Idempotency-Key from before counts as new.",
  ],
  statement: [
    "opening + purchases + trials + goodwill - charges + refunds + adjustments - reversals = closing, in credits. Purchases, trials and goodwill are grants of that kind; a reversal takes back what is left of a grant; a refund belongs to a request that was charged; an adjustment is none of these. `amounts_paid` is what customers paid for the purchases, by currency. The month is by UTC. Where entries of the month have left Redis and ARCHIVE_URL is not set, the opening is the balance after them.",
    IN_CSV,
  ],
  usage: [
    "With ARCHIVE_URL the figures come from the archive, which lags by about a second; else from Redis as far as it reaches. Standard error says which and how far, `source` does with --json. A charge and a refund count on the day of their ledger entry, a completed or failed task on the day when it ended. `seconds` is how long the completed tasks ran: from when the upstream had made a task until the gateway saw its end.",
    IN_CSV,
  ],
  "ledger export": [
    "Entries are ordered by partition, and within a partition by time. What gateways post during the export is in this run or in the next one, never in both: the cursor is the last entry of each partition.",
    "With --output and --cursor-file each entry is in the file exactly once, whenever the process ends: entries and their cursor are flushed to disk every second and at the end, and the next run cuts off what was written after the cursor and writes it again. The next run may name a new --output; the cursor continues. Without --output the cursor is written when everything has been handed to the reader, also after Ctrl-C; if the reader fails later, entries can come twice, so skip an `id` that you have already.",
    "--since and --until are times in the ledger's own order, so that adjacent spans have each entry once. --since applies where there is no cursor yet.",
    "If one of several Redis servers is away, the other partitions are exported and the exit code is 2. The cursor of an unread partition does not move, so the next run continues there.",
    "Entries that have left Redis for the archive are not exported; a line on standard error says from when on Redis has all of them, with --json and --output `complete_since`. A cursor from before that is refused, because entries would be missing unsaid.",
    IN_CSV,
  ],
  "ledger verify": [
    "The exit code is 1 if something does not add up. If one of several Redis servers is away, the other partitions are verified and the exit code is 2. With --json, `ok` is true only if everything was read and adds up.",
  ],
  "store accept": [
    "Gateways do not use a Redis that lacks ledger entries that it has confirmed. What they found is in the store; run this where the journal folder of a gateway is, to include its files. Restore a newer copy if there is one: you cannot undo an acceptance.",
    "`sent_again` are charges that gateways still hold. `lost` has each charge, grant and refund that is known to be lost, from the files of the journal folder: repeat the grants with their references, and bill or write off the charges that are not `sent_again`. `unknown_before` is the time before which the list is incomplete, `known_until` the time of the newest known entry. Until a store is accepted, nothing is written to it: commands that grant, create, change or revoke are refused. With several primaries, that is those that write to the primary that has lost something.",
  ],
  "store show": [
    "The exit code is 1 if something is missing, and 2 if one of several Redis servers is away.",
  ],
  "partitions freeze": [
    "For a Redis Cluster that moves slots key by key. When it returns, no gateway, sweeper or command changes these partitions any more. Requests of their accounts get 503 with `Retry-After`; charges of generations in progress wait at the gateways. All other accounts are served. A freeze does not end by itself: `tollgate_partitions_frozen` counts, and an alert comes after an hour. Thaw within half of `tasks.retention`, or charges that wait are given up.",
    "It waits a second for a replica. If none has it, it says so: repeat it before you move anything, because a failover would lose the freeze.",
  ],
  "partitions list": [
    "`moving`: the slot is on its way to another node. `listed, not frozen`: a failover has lost the mark, so freeze the partition again; until then gateways leave it alone, but other commands do not. `frozen, not listed`: nothing changes the partition, but the list has lost it; freeze or thaw it again.",
  ],
  "partitions thaw": [
    "It is refused while the slot of a partition is on its way to another node: end that with `redis-cli --cluster fix` first.",
  ],
  "config diff": [
    "The exit code is 1 if the running gateway would refuse the file: it drops a tier that keys use, or a price changes more than tenfold and is not confirmed. `refused` says what with --json. `not_checked` says what the gateway does not know of keys by tier.",
  ],
  doctor: [
    "The exit code is 1 if a check fails (FAIL, status `fail`), and 0 if there are only warnings. With --json: `{ok, checks: [{name, ok, status, message, advice}]}`, where `status` is ok, warn or fail, and `advice` says what to do. Run it on the gateway's machine, with its environment.",
    "It writes one key to Redis that expires after a minute, loads the scripts, asks the upstream for a task that does not exist, and sends a POST to a path that accepts none. Neither creates a task.",
    "With --generate it then makes one real video, the cheapest that needs nothing but a prompt, and polls its task until it ends. It says before what that costs by the price file; no account is charged, and nothing of it is written to Redis, but the upstream may bill you. The option is the consent: there is no question. Each step is printed when it is seen, with --json on standard error: time, HTTP status, request id, task id, states. The check is called `generation`; with --json, `generation` has `{host, endpoint, price, request_id, task_id, took_ms, polls, steps: [{at, after_ms, http_statuses, finding}]}`. Of the video's address only the host is shown. Where the outcome is not known, the video may have been made and billed: ask the upstream about the request id before you make another.",
    "With Sentinels or a cluster it looks at each server: roles, replicas and how far they are behind, persistence, eviction policy, `min-replicas-to-write`, `replica-priority`, and whether all clocks agree; at each Sentinel: whether it answers, the quorum, and that all name the same primary; in a cluster: slots without a primary, nodes that are away, primaries without a replica, and slots that are moving. It must reach all of them by the addresses that they announce.",
  ],
};

const LINES: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  "": {
    "a customer with 500 credits and a first key": "tollgate keys create --account acme --credits 500",
    "is everything in order?": "tollgate doctor",
  },
  "adapter test": { "your own module for the upstream": "tollgate adapter test generator.ts" },
  "store show": { "what is missing, before anything is decided": "tollgate store show" },
  "store accept": {
    "go on with a restored backup, and keep the list": "tollgate store accept --json > lost.json",
  },
  "archive migrate": { "before gateways use it, as its owner": "tollgate archive migrate" },
  "archive verify": { "does the archive have what Redis has?": "tollgate archive verify" },
  "archive detach": { "when the archive is given up": "tollgate archive detach" },
  "archive restore": { "an empty Redis, and all gateways stopped": "tollgate archive restore" },
  "partitions list": { "is anything frozen?": "tollgate partitions list --frozen" },
  "partitions freeze": { "before their slots move to another node": "tollgate partitions freeze 3,17" },
  "partitions thaw": { "once their slots have moved": "tollgate partitions thaw 3,17" },
  "maintenance on": {
    "tell customers when to come back": "tollgate maintenance on --retry-after 600 --message Upgrade",
  },
  "maintenance off": { "go on": "tollgate maintenance off" },
  "maintenance show": { "is there any?": "tollgate maintenance show" },
  "keys create": {
    "a new customer, with credits": "tollgate keys create --account acme --credits 500",
    "limits of its own, for a while":
      "tollgate keys create --account acme --rate-limit 60 --expires 2090-01-31",
    "only the key, for a script": "tollgate keys create --account acme --json | jq -r .key",
  },
  "keys import": {
    "one key; it ends up in your shell's history": "tollgate keys import sk_live_4f9a --account acme",
    "one that does not": "tollgate keys import - --account acme < key.txt",
    "many: one a line, or key,account,tier": "tollgate keys import --from keys.csv",
  },
  "keys list": {
    "keys of one account": "tollgate keys list --account acme",
    "a hundred at a time": "tollgate keys list --tier enterprise --limit 100 --after key_4x7",
    "ids of those that still work": "tollgate keys list --status active --json | jq -r '.keys[].key_id'",
  },
  "keys show": {
    "by its id": "tollgate keys show key_4x7",
    "which key is this?": "tollgate keys show sk_live_4f9a",
  },
  "keys revoke": { "end a key that has leaked": "tollgate keys revoke key_4x7" },
  "keys rotate": {
    "a day to change over": "tollgate keys rotate key_4x7 --overlap 24h",
    "at once": "tollgate keys rotate key_4x7",
  },
  "keys set": {
    "more requests a minute": "tollgate keys set key_4x7 --rate-limit 60",
    "at most 1000 credits a month": "tollgate keys set key_4x7 --monthly-credits 1000 --label backend",
    "back to what the tier says": "tollgate keys set key_4x7 --rate-limit default --expires never",
  },
  "credits grant": {
    "once per invoice, however often it is said": "tollgate credits grant acme 500 --reference invoice-17",
    "a package of the price list": "tollgate credits grant acme --package premium --reference order-9",
    "for nothing": "tollgate credits grant acme 50 --kind goodwill --reference ticket-7",
  },
  "credits reverse": {
    "the money of order-9 went back to the customer":
      "tollgate credits reverse acme order-9 --reason money-back --reference t-83",
  },
  "credits adjust": {
    "for a customer's trouble": "tollgate credits adjust acme 50 --reason outage-3-May --reference t-81",
    "a grant that was wrong": "tollgate credits adjust acme -500 --reason granted-twice --reference t-82",
  },
  "accounts create": { "before its first key": "tollgate accounts create acme --label Acme" },
  "accounts list": {
    "all whose id begins so": "tollgate accounts list --prefix shop-",
    "those on a plan, by their metadata": "tollgate accounts list --metadata plan=pro",
  },
  "accounts show": { "its limits, status and balance": "tollgate accounts show acme" },
  "accounts set": {
    "no generation until they have paid": "tollgate accounts set acme --status suspended --as ann",
    "a limit over all its keys": "tollgate accounts set acme --rate-limit 200 --daily-limit none",
  },
  audit: {
    "what did operators change lately?": "tollgate audit --limit 20",
    "for a program": "tollgate audit --account acme --json",
  },
  "credits show": { "what can acme spend, and what did it spend?": "tollgate credits show acme" },
  "tasks show": {
    "by task id, or by the gateway's id of its request (req_...)": "tollgate tasks show task_81c",
  },
  "tasks release": { "a task that hangs: free its slot, refund it": "tollgate tasks release task_81c" },
  "tokens create": {
    "for a shop's backend":
      "tollgate tokens create --label shop --scopes accounts:write,keys:write,credits:write",
    "to look at one customer, until the end of the year":
      "tollgate tokens create --label audit --scopes accounts:read,usage:read --accounts acme --expires 2090-12-31",
  },
  "accounts top": {
    "who spent most this month?": "tollgate accounts top --from 2026-11-01",
    "who was refused most today?": "tollgate accounts top --by refusals",
  },
  "keys refusals": {
    "why did it get 429 at 14:03?": "tollgate keys refusals key_9yKq2m4vTz0a --outcome rate_limited",
    "what a customer's id stands for": "tollgate keys refusals key_9yKq2m4vTz0a --request-id order-1",
  },
  "credits transactions": {
    "what was sold in November?": "tollgate credits transactions --kind purchase --from 2026-11-01",
  },
  "credits correct": {
    "what would a correction give back?":
      "tollgate credits correct --from 2026-11-01T10:00:00Z --to 2026-11-01T10:30:00Z --prices gen2/text-to-video:20:10 --reference wrong-price-7 --reason wrong-price --dry-run",
  },
  "tokens list": { "who may do what?": "tollgate tokens list" },
  "tokens revoke": { "a token that leaked": "tollgate tokens revoke tok_9yKq2m4vTz0a" },
  "tasks refund": {
    "a video that was black": "tollgate tasks refund task_81c --reason black-video --reference t-83",
  },
  "webhooks create": {
    "for a shop's backend":
      "tollgate webhooks create acme https://shop.example.com/webhooks --events task.completed,task.failed",
  },
  "webhooks list": { "is one disabled?": "tollgate webhooks list acme" },
  "webhooks show": { "what waits, what was dropped": "tollgate webhooks show acme we_9yKq2m4vTz0aRx0d" },
  "webhooks set": {
    "their server works again": "tollgate webhooks set acme we_9yKq2m4vTz0aRx0d --status enabled",
    "nothing more for now": "tollgate webhooks set acme we_9yKq2m4vTz0aRx0d --status disabled",
  },
  "webhooks delete": { "with all that waits": "tollgate webhooks delete acme we_9yKq2m4vTz0aRx0d" },
  "webhooks rotate-secret": {
    "a day to change over": "tollgate webhooks rotate-secret acme we_9yKq2m4vTz0aRx0d",
    "one that leaked": "tollgate webhooks rotate-secret acme we_9yKq2m4vTz0aRx0d --overlap 0s",
  },
  "webhooks test": { "does it arrive?": "tollgate webhooks test acme we_9yKq2m4vTz0aRx0d" },
  "webhooks deliveries": {
    "what failed, and what did they answer?":
      "tollgate webhooks deliveries acme we_9yKq2m4vTz0aRx0d --status failed",
    "what went to the callBackUrl of requests?": "tollgate webhooks deliveries acme callback",
  },
  "webhooks redeliver": {
    "once they have mended it":
      "tollgate webhooks redeliver acme we_9yKq2m4vTz0aRx0d evt_req_81c_task_completed",
  },
  "webhooks reseal": { "after WEBHOOK_SECRET_KEY was changed": "tollgate webhooks reseal" },
  "ledger verify": {
    everybody: "tollgate ledger verify",
    "one account, for a script": "tollgate ledger verify --account acme --json",
  },
  "ledger export": {
    "all of it, as lines of JSON": "tollgate ledger export > ledger.ndjson",
    "each night what is new, exactly once":
      "tollgate ledger export --format csv --output ledger.csv --cursor-file ledger.cursor",
    "one account's January": "tollgate ledger export --account acme --since 2026-01-01 --until 2026-02-01",
    "the first lines": "tollgate ledger export --since 24h | head",
  },
  usage: {
    "credits a day": "tollgate usage --from 2026-10-01 --to 2026-10-31",
    "what acme used, by endpoint and key": "tollgate usage --account acme --by endpoint,key",
    "who used most, for a spreadsheet": "tollgate usage --by account --format csv > usage.csv",
  },
  statement: {
    "acme's October": "tollgate statement acme 2026-10",
    "for a program": "tollgate statement acme 2026-10 --json",
  },
  "config check": {
    "the one in use": "tollgate config check",
    "one that is to come": "tollgate config check new.yaml",
  },
  "config print": {
    "what is in force, and where is it from?": "tollgate config print",
    "which settings does the file or the environment set?": "tollgate config print | grep -v ' default$'",
  },
  "config diff": {
    "what would a reload change in the running gateway?": "tollgate config diff",
    "and what would another file?": "tollgate config diff new.yaml",
  },
  price: {
    "what would this body cost?": "tollgate price gen2-pro/text-to-video body.json",
    "from standard input": 'echo \'{"prompt":"rain"}\' | tollgate price gen2/text-to-video -',
  },
  doctor: {
    "before the first start, and when something is odd": "tollgate doctor",
    "does the upstream make a video? It may bill it": "tollgate doctor --generate",
    "what must be mended, for a script": "tollgate doctor --json | jq '.checks[] | select(.ok | not)'",
  },
  completion: {
    "bash, for this shell": 'eval "$(tollgate completion bash)"',
    "zsh, for all to come": "tollgate completion zsh > ~/.zfunc/_tollgate",
    "fish, for all to come": "tollgate completion fish > ~/.config/fish/completions/tollgate.fish",
  },
};

/** By the words of their command, `tollgate` itself under "". Shown by `--help` and in docs/cli.md; a test parses each. */
export const EXAMPLES: Readonly<Record<string, readonly (readonly [what: string, line: string])[]>> =
  Object.fromEntries(Object.entries(LINES).map(([words, lines]) => [words, Object.entries(lines)]));
