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
