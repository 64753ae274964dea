import { cp, mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readScript, scriptPaths } from "../../src/redis/script-source.ts";
import { LUA_FOLDER } from "./headers.ts";

/** `npm test` plants a third of the mutants of a file's own, others each time; the fault campaign plants all (`MUTANTS=all`). */
const SHARES = 3;
const SHARE = Math.floor(Math.random() * SHARES);

/** The mutants of a file that this run plants; by `MUTANTS` all, or those whose file or name has its text. */
export function inShare<One extends { file: string; what: string }>(mutants: readonly One[]): One[] {
  const wanted = process.env.MUTANTS;
  if (wanted === "all") return [...mutants];
  return mutants.filter(({ file, what }, at) =>
    wanted === undefined ? at % SHARES === SHARE : `${file}: ${what}`.includes(wanted),
  );
}

/** One mistake that somebody could make in a script: `find` stands once in the file and becomes `put`. */
export interface Mutant {
  what: string;
  file: string;
  find: string;
  put: string;
}

const mutant = (what: string, file: string, find: string, put: string): Mutant => ({ what, file, find, put });
const without = (what: string, file: string, find: string): Mutant => mutant(what, file, find, "");

export const MUTANTS: readonly Mutant[] = [
  // include
  mutant("an entry counts for 60 s and 1 ms", "include/window", "WINDOW_MS = 60000", "WINDOW_MS = 60001"),
  mutant("an entry counts for 59.999 s", "include/window", "WINDOW_MS = 60000", "WINDOW_MS = 59999"),
  mutant(
    "an entry of exactly 60 s counts",
    "include/window",
    "if stamp > since then most, oldest",
    "if stamp >= since then most, oldest",
  ),
  mutant("an oldest entry of exactly 60 s counts", "include/window", "oldest > since", "oldest >= since"),
  mutant(
    "a key's clock runs backwards",
    "include/limits",
    "(f[2])\n  local clock = math.max(now, counted_until)",
    "(f[2])\n  local clock = now",
  ),
  mutant("a revoked key is good", "include/limits", "usable = not terms.revoked_at and", "usable ="),
  mutant(
    "a key is good in the ms it expires",
    "include/limits",
    "clock < terms.expires_at + 0",
    "clock <= terms.expires_at + 0",
  ),
  mutant("own limits do not count", "include/limits", "terms.rate_limit or tier.rate,", "tier.rate,"),
  mutant("an unknown tier has no limits of its own", "include/limits", "at or 1)", "at or 20)"),
  mutant(
    "yesterday's count goes on",
    "include/limits",
    "is_same_day and day_count + 0 or 0,\n    is_same_day = is_same_day,\n  }, terms)",
    "day_count + 0,\n    is_same_day = is_same_day,\n  }, terms)",
  ),
  mutant("a month never ends", "admit", "not (key.is_same_day and spent)\n  and", "not spent\n  and"),
  mutant("remaining below zero", "include/reply", "math.max(0, rate_limit - live)", "rate_limit - live"),
  mutant(
    "reset by the newest entry",
    "include/window",
    'local oldest = stamp_at(window, "-1")',
    "local oldest = stamp_at(window, 0)",
  ),
  mutant(
    "reset by an entry that has left",
    "include/window",
    "return length - gone, length, oldest",
    "return length - gone, length, stamp_at(window, -gone)",
  ),
  mutant(
    "reset by one entry too new",
    "include/window",
    "return length - gone, length, oldest",
    "return length - gone, length, stamp_at(window, -gone - 2)",
  ),
  mutant(
    "one that has left still counts",
    "include/window",
    "return length - gone, length",
    "return length - gone + 1, length",
  ),
  mutant(
    "an empty window resets later than now",
    "include/reply",
    "oldest + WINDOW_MS or now",
    "oldest + WINDOW_MS or now + WINDOW_MS",
  ),
  mutant("the ledger without its request", "include/ledger", "unpack(more))", "unpack({}))"),
  mutant("an entry names none before it", "include/ledger", ".. previous ..", '.. "" ..'),
  mutant(
    "the account's last entry stays",
    "include/ledger",
    "requests, id, extras",
    "requests, last, extras",
  ),
  mutant(
    "a charge forgets what else the account has",
    "include/ledger",
    "requests, id, extras",
    'requests, id, ""',
  ),
  mutant(
    "a void hold forgets what else the account has",
    "include/money",
    "count), last, extras)",
    'count), last, "")',
  ),
  mutant("an admission forgets what else the account has", "admit", "+ 1), last, extras)", '+ 1), last, "")'),
  mutant(
    "a repeat is admitted again",
    "admit",
    'call("SETNX", request, record) == 0',
    'call("SET", request, record) == 0',
  ),
  mutant("an admission forgets the last entry", "admit", "+ 1), last, extras)", '+ 1), "-", extras)'),
  mutant("an admission forgets what was used", "admit", "used, int(requests + 1)", '"0", int(requests + 1)'),
  mutant(
    "a block is not noted in the money",
    "include/unknown",
    "mark_extras(account)\n  return count, blocked_until",
    "return count, blocked_until",
  ),
  mutant("what is held is forgotten", "include/ledger", "int(held_before + held)", "int(held)"),
  mutant("the total used is forgotten", "include/ledger", "int(used_before + used)", "int(used)"),
  mutant("one recent transaction less", "credits", "#entries < most", "#entries < most - 1"),
  mutant("one recent transaction more", "credits", "#entries < most", "#entries <= most"),
  mutant("only the last transaction", "credits", "last = read_entry(entry[2]).previous", "last = nil"),
  // batch
  mutant("an item's words begin one late", "batch", "now, tiers, struct", "now, tiers, '', struct"),
  mutant("an item's words begin one early", "batch", "now, tiers, struct", "now, struct"),
  mutant(
    "an item loses its last word",
    "batch",
    "  local ok, answer",
    "  WORDS = string.sub(WORDS, 2)\n  local ok, answer",
  ),
  mutant(
    "replies come in the wrong order",
    "batch",
    'replies[#replies + 1] = type(answer) == "table" and cjson.encode(answer) or answer',
    'table.insert(replies, 1, type(answer) == "table" and cjson.encode(answer) or answer)',
  ),
  mutant(
    "every item is told what the first is",
    "batch",
    "replies[#replies + 1] = type",
    "replies[#replies + 1] = replies[1] or type",
  ),
  mutant(
    "an item is run twice",
    "batch",
    "  local ok, answer",
    "  pcall(run, now, tiers, struct.unpack(WORDS, items, place))\n  local ok, answer",
  ),
  mutant("one item that fails ends the call", "batch", "pcall(run, ", "true, run("),
  mutant(
    "one item that fails ends its neighbours' turn",
    "batch",
    "  if not ok then",
    "  if not ok then break end\n  if not ok then",
  ),
  mutant(
    "one item that fails makes all fail",
    "batch",
    'return "["',
    `for _, one in ipairs(replies) do if string.find(one, '{"err', 1, true) == 1 then return '[]' end end\nreturn "["`,
  ),
  mutant(
    "an item that failed has no reply",
    "batch",
    "cjson.encode(answer) or answer\nend",
    "cjson.encode(answer) or answer\n  if not ok then replies[#replies] = nil end\nend",
  ),
  // reclaim
  mutant("what the upstream ended is charged again", "reclaim", 'record.ended_by ~= "expired" or', ""),
  mutant("an uncollected task is charged again", "reclaim", "or record.uncollected or", "or"),
  mutant("a disputed task is charged again", "reclaim", "or kept.is_disputed", ""),
  mutant("an operator's refund is taken back", "reclaim", "if is_by_operator and", "if false and"),
  mutant("held credits are charged again", "reclaim", "money.available < price", "money.balance < price"),
  mutant("more than there is is charged again", "reclaim", 'return { "uncovered", now }', ""),
  mutant(
    "what was not refunded is charged again",
    "reclaim",
    "if record.refunded then\n  post",
    "if true then\n  post",
  ),
  mutant(
    "charging again is no use",
    "reclaim",
    "-price, 0, price, record.endpoint",
    "-price, 0, 0, record.endpoint",
  ),
  mutant(
    "charging again frees a hold",
    "reclaim",
    "-price, 0, price, record.endpoint",
    "-price, -price, price, record.endpoint",
  ),
  mutant(
    "what is charged again is not spent",
    "reclaim",
    "add_spent(spent, record.admitted_at or record.due_at, price)",
    "",
  ),
  mutant("charged again, but failed", "reclaim", '"status", "completed", "ended_by", "upstream", ', ""),
  mutant("charged again, but answered as before", "reclaim", 'call("SET", task,', "local _ = string.format("),
  mutant("charged again, it is kept as before", "reclaim", 'call("ZADD", done,', 'call("ZADD", done, "NX",'),
  mutant(
    "a task that is too old is kept as others",
    "observe",
    "int(2 * tonumber(record.retention_ms))",
    "record.retention_ms",
  ),
  mutant(
    "every task is kept twice as long",
    "observe",
    'if ended_by == "expired" and record.retention_ms then',
    "if record.retention_ms then",
  ),
  // admit
  mutant("limit plus one", "include/limits", "if live >= key.rate_limit", "if live > key.rate_limit"),
  mutant(
    "daily limit plus one",
    "include/limits",
    "key.day_count >= key.daily_limit",
    "key.day_count > key.daily_limit",
  ),
  mutant(
    "a daily refusal says one request too few as used",
    "include/limits",
    "int(key.daily_limit), int(key.day_count)\n",
    "int(key.daily_limit), int(key.day_count - 1)\n",
  ),
  mutant("one slot too many", "include/limits", ">= key.max_concurrent", "> key.max_concurrent"),
  mutant("the last credit cannot be spent", "admit", "available < price", "available <= price"),
  mutant("held credits are spent again", "admit", "balance - held", "balance + 0"),
  without(
    "a suspended account is admitted",
    "admit",
    'if status then return refuse("account_suspended", status) end\n',
  ),
  mutant("only closed accounts are refused", "admit", "if status then", 'if status == "closed" then'),
  mutant(
    "the status is looked at before a repeat",
    "admit",
    "local earlier = read_state(request)",
    'local earlier = not call("HGET", account, "status") and read_state(request)',
  ),
  mutant("a closed account asks on", "inspect", 'if status == "closed" then', "if false then"),
  mutant("a suspended account cannot ask", "inspect", 'if status == "closed" then', 'if status ~= "" then'),
  mutant(
    "a suspended account is told as active",
    "inspect",
    "slots, status) end\n\nlocal task",
    'slots, "") end\n\nlocal task',
  ),
  mutant("a closed account reads its credits", "credits", 'if status == "closed" then', "if false then"),
  mutant("a suspended account cannot read its credits", "credits", 'status == "closed"', 'status ~= ""'),
  without(
    "a cap is not looked at",
    "admit",
    "  if spent + price > tonumber(key.monthly_credits) then\n" +
      '    return refuse("spend_capped", int(key.monthly_credits), int(spent), details and int(price))\n  end\n',
  ),
  mutant("nobody is told when a key ends", "include/reply", 'key.expires_at or "-", cap', '"-", cap'),
  mutant("nobody is told what a key has spent", "include/reply", 'spent and int(spent) or "-"', '"-"'),
  without(
    "what is told does not count this request",
    "admit",
    "if key.monthly_credits then key.spent = spent + price end\n",
  ),
  mutant(
    "the last credit of a cap cannot be spent",
    "admit",
    "+ price > tonumber(key.monthly",
    "+ price >= tonumber(monthly",
  ),
  mutant("a cap is exceeded by the last request", "admit", "spent + price > tonumber", "spent >= tonumber"),
  mutant(
    "credits before the cap",
    "admit",
    "if spent + price > tonumber(key.monthly_credits) then",
    "if balance - held >= price and spent + price > tonumber(key.monthly_credits) then",
  ),
  mutant(
    "what is spent is counted anew",
    "admit",
    "spent_after = int(spent + price)",
    "spent_after = int(price)",
  ),
  mutant(
    "what is spent is not counted",
    "admit",
    "spent_after = int(spent + price)",
    "spent_after = int(spent)",
  ),
  mutant("what is spent is of no month", "admit", "if is_new_month then", "if false then"),
  mutant("last month's credits go on", "admit", "is_new_month and 0 or (spent or 0) + 0", "(spent or 0) + 0"),
  mutant("a month ends a day early", "include/clock", "+ 719468", "+ 719469"),
  without(
    "a void gives no room back",
    "void",
    "  add_spent(spent, record.admitted_at, -tonumber(record.price))\n",
  ),
  without(
    "a refund gives no room back",
    "include/refund",
    "  add_spent(spent, record.admitted_at or record.due_at, -price)\n",
  ),
  mutant(
    "a late one without an admission gives no room back",
    "include/refund",
    "record.admitted_at or record.due_at",
    "record.admitted_at",
  ),
  without(
    "a late one takes no room",
    "bind",
    '  if outcome == "late" then add_spent(spent, admitted_at, price) end\n',
  ),
  mutant(
    "an uncollected one takes room",
    "bind",
    'if outcome == "late" then add_spent',
    "if true then add_spent",
  ),
  mutant(
    "a forgotten one takes no room",
    "bind",
    "tonumber(recorded_at or admission)",
    "tonumber(recorded_at)",
  ),
  mutant("a late one is of the month of its BIND", "bind", "admitted_at, price", "now, price"),
  without(
    "a key's clock stays behind its month",
    "include/spent",
    "    change_counters(spent.key, CLOCK_WORD, int(math.max(spent.clock, admitted_at)))\n",
  ),
  mutant("another month gets the room", "include/spent", "if month == spent.month then", "if true then"),
  mutant(
    "a later month begins with the last one's credits",
    "include/spent",
    "SPENT_WORD, int(credits))",
    "SPENT_WORD, int(spent.credits + credits))",
  ),
  // limits over all keys of an account
  mutant(
    "an account's limits are not looked at",
    "admit",
    "limited and read_shared",
    "false and read_shared",
  ),
  mutant(
    "an account's window plus one",
    "include/limits",
    "if shared.live >= shared.rate_limit",
    "if shared.live > shared.rate_limit",
  ),
  mutant(
    "an account's day plus one",
    "include/limits",
    "shared.day_count >= shared.daily_limit",
    "shared.day_count > shared.daily_limit",
  ),
  mutant(
    "an account's slots plus one",
    "include/limits",
    "shared.active >= shared.max_concurrent",
    "shared.active > shared.max_concurrent",
  ),
  mutant(
    "an account's wait is the key's",
    "include/limits",
    "wait_for(shared.window, shared.rate_limit, now)",
    "wait_for(window, shared.live, now)",
  ),
  mutant(
    "an account's midnight by its clock",
    "include/limits",
    "(shared.day + 1) * DAY_MS - now",
    "(shared.day + 1) * DAY_MS - shared.clock",
  ),
  mutant(
    "an account's day does not count",
    "admit",
    'count_request(shared, "0")',
    'counters_text(int(shared.clock), "0", int(shared.day), int(shared.day_count))',
  ),
  mutant(
    "an account's clock is not kept",
    "admit",
    'count_request(shared, "0")',
    'counters_text("0", "0", int(shared.day), int(shared.day_count + 1))',
  ),
  without(
    "no entry in the account's window",
    "admit",
    "  add_to_window(shared.window, int(shared.clock), shared.live, shared.length)\n",
  ),
  mutant(
    "the newest entry of an account is trimmed",
    "admit",
    "int(shared.clock), shared.live, shared.length)",
    "int(shared.clock), shared.live, shared.length + 1)",
  ),
  mutant(
    "one live entry of an account is trimmed",
    "admit",
    "int(shared.clock), shared.live, shared.length)",
    "int(shared.clock), shared.live - 1, shared.length)",
  ),
  without("no slot of the account", "admit", '  call("SADD", shared.slots, request_id)\n'),
  without(
    "nobody knows what an account counted",
    "admit",
    'if shared then rest = rest .. " account_at=" .. shared_mark(shared) end\n',
  ),
  mutant("an account's remaining without the new one", "admit", "= shared.live + 1,", "= shared.live,"),
  mutant("an account's active without the new one", "admit", "shared.active + 1\n", "shared.active\n"),
  mutant("an account's newest resets", "admit", "shared.oldest or shared.clock", "shared.clock"),
  mutant(
    "an account's clock runs backwards",
    "include/limits",
    ':account:(.*)$")\n  local clock = math.max(now, counted_until)',
    ':account:(.*)$")\n  local clock = now',
  ),
  mutant(
    "an account's yesterday goes on",
    "include/limits",
    "is_same_day and day_count + 0 or 0,\n  }\n",
    "day_count + 0,\n  }\n",
  ),
  mutant(
    "what was admitted under earlier limits counts",
    "include/limits",
    "limited == shared.limited and",
    "true and",
  ),
  mutant(
    "the headers show the key's window alone",
    "include/reply",
    "shared.rate_limit - shared.live < rate_limit - live",
    "false",
  ),
  mutant(
    "the headers show the account's window alone",
    "include/reply",
    "shared.rate_limit - shared.live < rate_limit - live",
    "shared.rate_limit < math.huge",
  ),
  mutant(
    "the headers show the key's slots alone",
    "include/reply",
    "shared.max_concurrent - shared.active < max_concurrent - active",
    "false",
  ),
  mutant(
    "the headers show the lower limit of slots",
    "include/reply",
    "shared.max_concurrent - shared.active < max_concurrent - active",
    "shared.max_concurrent < max_concurrent",
  ),
  without(
    "headers of a poll without the account",
    "inspect",
    "key.shared = account[2] and read_shared(account_name, account[2], now)\n",
  ),
  mutant(
    "credits show the key's day alone",
    "include/limits",
    "if shared and shared.daily_limit - shared.day_count",
    "if false and shared.day_count",
  ),
  mutant(
    "credits show the lower limit of a day",
    "include/limits",
    "shared.daily_limit - shared.day_count < key.daily_limit - key.day_count",
    "shared.daily_limit < key.daily_limit",
  ),
  without("headers of credits without the account", "credits", "key.shared = shared\n"),
  without("headers after a VOID without the account", "void", "if key then key.shared = shared end\n"),
  without("the account's slot stays", "void", 'if shared then call("SREM", shared.slots, request_id) end\n'),
  without(
    "unsent stays in the account's window",
    "void",
    '  if account_at then call("LREM", shared.window, 1, account_at) end\n',
  ),
  mutant(
    "all equal entries leave the account's window",
    "void",
    '"LREM", shared.window, 1, account_at',
    '"LREM", shared.window, 0, account_at',
  ),
  mutant(
    "unsent after due stays in the account's window",
    "void",
    "    forget_admission(record.admitted_at, account_at)\n    call",
    "    forget_admission(record.admitted_at)\n    call",
  ),
  mutant(
    "the account's day stays",
    "void",
    "if account_at then change_counts(account, account_at, -1) end\n",
    "",
  ),
  without(
    "a late one without a slot of its account",
    "bind",
    '  if shared then call("SADD", shared.slots, request_id) end\n',
  ),
  mutant(
    "a late one is not counted in its account's day",
    "bind",
    "  if account_at then change_counts(account, account_at, 1) end\n",
    "",
  ),
  without(
    "an ended task keeps its account's slot",
    "observe",
    'if shared then call("SREM", shared.slots, request_id) end\n',
  ),
  without("headers after an OBSERVE without the account", "observe", "if key then key.shared = shared end\n"),
  without(
    "headers after a poll of a task that goes on without the account",
    "observe",
    '  limited = key and call("HGET", account, "limited")\n',
  ),
  mutant("limits are not marked", "include/limits", "if has_limits and not f[4] then", "if false then"),
  mutant(
    "limits that change begin anew",
    "include/limits",
    "if has_limits and not f[4] then",
    "if has_limits then",
  ),
  mutant(
    "limits that are removed stay marked",
    "include/limits",
    "elseif f[4] and not has_limits then",
    "elseif false then",
  ),
  mutant("limits that are removed leave their day", "include/limits", '"limited", "counters")', '"limited")'),
  mutant(
    "limits that are removed leave their slots",
    "include/limits",
    ', tag .. ":account-slots:" .. id)',
    ")",
  ),
  mutant(
    "limits that are removed leave their window",
    "include/limits",
    'tag .. ":account-window:" .. id, ',
    "",
  ),
  without("open tasks do not count when limits are set", "gather", '    call("SADD", slots, request_id)\n'),
  mutant("slots are gathered without limits", "gather", 'call("HEXISTS", account, "limited") == 0', "false"),
  mutant("not_after is not looked at", "admit", "now > not_after + 0", "false"),
  mutant("stale one ms early", "admit", "now > not_after + 0", "now >= not_after + 0"),
  mutant("a replay is admitted anew", "admit", "if earlier then", 'if earlier == "void" then'),
  without("a revoked key is admitted", "admit", 'if not key.usable then return refuse("unknown_key") end\n'),
  mutant(
    "a repeat is judged by its key",
    "admit",
    'if not key then return reply("unknown_key", now) end',
    'if not key or not key.usable then return reply("unknown_key", now) end',
  ),
  mutant("the tombstone is overlooked", "admit", 'earlier == "void" and "void" or "admitted"', '"admitted"'),
  mutant("any body answers to an Idempotency-Key", "admit", "first[2] ~= fingerprint", "false"),
  mutant("a bound request still in progress", "admit", "if first[3] then", "if false then"),
  mutant(
    "limits before the Idempotency-Key",
    "admit",
    "if idempotency then\n  local first",
    "if idempotency and read_window(window, key.clock) < key.rate_limit then\n  local first",
  ),
  mutant(
    "retry by the oldest entry",
    "include/limits",
    "wait_for(window, key.rate_limit, now)",
    "wait_for(window, live, now)",
  ),
  mutant("retry by the key's clock", "include/limits", "key.rate_limit, now)", "key.rate_limit, key.clock)"),
  mutant(
    "midnight by the key's clock",
    "include/limits",
    "(key.day + 1) * DAY_MS - now",
    "(key.day + 1) * DAY_MS - key.clock",
  ),
  mutant("the day does not count", "include/limits", "int(owner.day_count + 1)", "int(owner.day_count)"),
  mutant("the clock is not kept", "include/limits", "counters_text(int(owner.clock)", 'counters_text("0"'),
  without("no window entry", "include/window", '  call("LPUSH", window, stamp)\n'),
  mutant(
    "the newest entry is trimmed",
    "include/window",
    '"LTRIM", window, "0", live)',
    '"LTRIM", window, "1", live)',
  ),
  mutant(
    "one live entry is trimmed",
    "include/window",
    '"LTRIM", window, "0", live)',
    '"LTRIM", window, "0", live - 1)',
  ),
  mutant("one live entry is dropped", "include/window", "live == length - 1", "live >= length - 1"),
  mutant(
    "an empty window is never trimmed",
    "include/window",
    "elseif live < length then",
    "elseif live > 0 and live < length then",
  ),
  without("no slot", "admit", 'call("SADD", slots, request_id)\n'),
  mutant("no hold", "admit", "int(held + price)", "int(held)"),
  mutant("other holds are forgotten", "admit", "int(held + price)", "int(price)"),
  mutant("requests are not counted", "admit", "int(requests + 1)", "requests"),
  mutant("requests are counted anew", "admit", "int(requests + 1)", "1"),
  mutant("remaining without the new one", "admit", "key, live + 1, oldest", "key, live, oldest"),
  mutant("active without the new one", "admit", "active + 1, key.noted,", "active, key.noted,"),
  mutant("the first of a window resets now", "admit", "oldest or key.clock", "oldest"),
  mutant("the newest resets", "admit", "oldest or key.clock", "key.clock"),
  without("the sweeper never hears of it", "admit", 'call("ZADD", prefix .. "due", due_at, request_id)\n'),
  mutant(
    "a limit in shadow mode refuses",
    "include/limits",
    "if not string.find(key.shadow, letter, 1, true)",
    "if true",
  ),
  mutant("no limit refuses", "include/limits", "if not string.find(key.shadow, letter, 1, true)", "if false"),
  mutant("shadow mode goes unnoted", "admit", "active + 1, key.noted,", "active + 1, nil,"),
  mutant("the last shadow alone is noted", "include/limits", '(key.noted or "") .. letter', "letter"),
  mutant("the day's shadow is the window's", "include/limits", 'refuses(key, "d")', 'refuses(key, "r")'),
  without("an Idempotency-Key expires while it is held", "admit", '  call("PERSIST", idempotency)\n'),
  mutant(
    "slots before the window",
    "admit",
    "local refusal, a, b",
    'if active >= key.max_concurrent then return reply("concurrency_limited", now, key, window, slots) end\nlocal refusal, a, b',
  ),
  // bind
  mutant(
    "another's task id is taken",
    "bind",
    "if owner and read_owner(owner) ~= request_id then",
    "if false then",
  ),
  mutant("another's task is written over", "bind", 'owned, "NX", "GET")', 'owned, "GET")'),
  mutant(
    "a replay is a conflict",
    "bind",
    "if owner and read_owner(owner) ~= request_id then",
    "if owner then",
  ),
  mutant(
    "a second task for one request",
    "bind",
    "earlier and earlier.task_id and earlier.task_id ~= task_id",
    "false",
  ),
  mutant(
    "charged again on replay",
    "bind",
    'if state == "bound" or state == "finished"',
    'if state == "finished"',
  ),
  mutant(
    "an ended task is bound again",
    "bind",
    'if state == "bound" or state == "finished"',
    'if state == "bound"',
  ),
  mutant(
    "the price is not what admission fixed",
    "bind",
    'earlier.endpoint or "", earlier.price',
    'earlier.endpoint or "", price_text',
  ),
  mutant("late is charged without cover", "bind", "= covered and not is_others", "= not is_others"),
  mutant("late is never charged", "bind", "= covered and not is_others", "= false"),
  mutant(
    "a late one is charged though its Idempotency-Key has expired early",
    "bind",
    " and not is_lost",
    "",
  ),
  mutant(
    "any record of an Idempotency-Key will do",
    "bind",
    "earlier.first_void_id ~= (first and first[3])",
    "not first[3]",
  ),
  without(
    "an Idempotency-Key for ever",
    "bind",
    '  call("PEXPIRE", idempotency, int(math.max(tonumber(idempotency_ms), tonumber(first[2] or 0) - now)))\n',
  ),
  mutant("one Idempotency-Key is charged twice", "bind", "= covered and not is_others", "= covered"),
  mutant(
    "a late one is not counted in its day",
    "include/limits",
    "if is_same_day and day_count + by >= 0 then",
    "if is_same_day and by < 0 and day_count + by >= 0 then",
  ),
  mutant(
    "a charged Idempotency-Key is forgotten before the first can be bound",
    "bind",
    "tonumber(first[2] or 0) - now",
    "0",
  ),
  without("a disputed task id goes unmarked", "bind", "  dispute(task, account_id)\n"),
  mutant("only running tasks are disputed", "include/task", " or is_final(task.status) then", " then"),
  mutant(
    "the same account's running task is disputed",
    "include/task",
    "task.account_id ~= account_id or",
    "true or",
  ),
  mutant(
    "a disputed task's owner is another",
    "include/task",
    'string.match(text, "^!?(%S+)")',
    'string.match(text, "^(%S+)")',
  ),
  mutant("held is spent by a late one", "bind", "money.available >= price", "money.balance >= price"),
  mutant("the hold stays", "bind", 'state == "held" and -price or 0', "0"),
  mutant("a late one releases a hold", "bind", 'state == "held" and -price or 0', "-price"),
  mutant("total used stays", "bind", "or 0, price, endpoint", "or 0, 0, endpoint"),
  mutant("uncollected is forgotten", "bind", 'outcome == "uncollected" and " uncollected=1" or ""', '""'),
  mutant(
    "uncollected is told as charged the next time",
    "bind",
    'earlier.uncollected and "uncollected" or "bound"',
    '"bound"',
  ),
  mutant(
    "an uncollected task is replayed for nothing",
    "bind",
    ' and (outcome ~= "uncollected" or is_lost)',
    "",
  ),
  without(
    "a late one without a slot",
    "bind",
    '  if not is_unmetered then call("SADD", (string.gsub(key_name, ":key:", ":slots:", 1)), request_id) end\n',
  ),
  without("a late one stays among the ended", "bind", '  call("ZREM", prefix .. "done", request_id)\n'),
  mutant("a tombstone's expiry stays", "bind", 'or ""))\nif state', 'or ""), "KEEPTTL")\nif state'),
  mutant(
    "the bound stays among the holds",
    "bind",
    '"due", task_score(now + poll_ms)',
    '"due", int(now + poll_ms)',
  ),
  without(
    "nobody polls the task",
    "bind",
    'call("ZADD", prefix .. "due", task_score(now + poll_ms), request_id)\n',
  ),
  mutant(
    "the task id is not taken",
    "bind",
    'claim and call("MSETNX", task, owned, claim, claim_text(request_id, prefix)) == 1',
    'claim and call("EXISTS", task, claim) == 0',
  ),
  mutant(
    "the task id is claimed without a record",
    "bind",
    'call("MSETNX", task, owned, claim, claim_text(request_id, prefix)) == 1',
    'call("EXISTS", task) == 0 and call("SETNX", claim, claim_text(request_id, prefix)) == 1',
  ),
  mutant(
    "the task id is not claimed",
    "bind",
    'call("MSETNX", task, owned, claim, claim_text(request_id, prefix)) == 1',
    'call("SETNX", task, owned) == 1',
  ),
  mutant(
    "another's Idempotency-Key is taken",
    "bind",
    'idempotency and not is_others and (outcome ~= "uncollected" or is_lost)',
    "idempotency",
  ),
  mutant(
    "a record has a digest though its request has not taken the Idempotency-Key",
    "bind",
    '(takes_key and state ~= "held"',
    '(idempotency and state ~= "held"',
  ),
  mutant(
    "a charge of a request that was forgotten has no digest",
    "bind",
    " and not earlier.idempotency",
    " and earlier.idempotency",
  ),
  mutant(
    "what COLLECT has deleted is charged again",
    "bind",
    "collected_until and tonumber(admission)",
    "false and tonumber(admission)",
  ),
  mutant(
    "one of the very time of the latest that was deleted is charged again",
    "bind",
    "tonumber(admission) <= tonumber(collected_until)",
    "tonumber(admission) < tonumber(collected_until)",
  ),
  mutant(
    "a request that is there is taken for deleted",
    "bind",
    "if not state and admission",
    "if admission",
  ),
  mutant(
    "a charge without an admission is deleted without a trace",
    "bind",
    'rest = " " .. admission',
    'rest = " "',
  ),
  // void
  mutant("a hold ends before its due time", "void", 'reason == "due" and now', 'reason == "never" and now'),
  mutant("due one ms late", "void", "now < tonumber(record.due_at)", "now <= tonumber(record.due_at)"),
  mutant("a charged request is taken back", "void", 'if state ~= "held" then', 'if state == "finished" then'),
  mutant(
    "taken back twice",
    "void",
    '  return reply("void", now, key, window, slots, "before")\nend\n',
    "end\n",
  ),
  without("the hold stays in the balance", "void", "add_to_money(account, -record.price, 0)\n"),
  without("the slot stays", "void", 'call("SREM", slots, request_id)\n'),
  mutant(
    "no tombstone",
    "void",
    'if reason == "unsent" then\n    call("SET", request, request_text',
    'if false then\n    call("SET", request, request_text',
  ),
  mutant("a tombstone for ever", "void", ', "PX", tombstone_ms)', ")"),
  mutant(
    "another day gets the count",
    "include/limits",
    "if is_same_day and day_count + by >= 0 then",
    "if day_count + by >= 0 then",
  ),
  without("the day's count stays", "void", "  change_counts(key_name, record.admitted_at, -1)\n"),
  mutant(
    "a refused one leaves the window",
    "void",
    'if reason == "unsent" then forget',
    "if true then forget",
  ),
  mutant("unsent stays in the window", "void", 'if reason == "unsent" then forget', "if false then forget"),
  mutant(
    "unsent after due takes nothing back",
    "void",
    'reason == "unsent" and record.reason',
    "false and record.reason",
  ),
  without("unsent twice takes two back", "void", ' and record.reason ~= "unsent"'),
  mutant(
    "all equal entries leave the window",
    "void",
    '"LREM", window, 1, admitted_at',
    '"LREM", window, 0, admitted_at',
  ),
  without("the Idempotency-Key stays taken", "void", '    call("DEL", idempotency)\n'),
  mutant("a hold that ended by itself is as good as refused", "void", 'reason == "due" or reason', "reason"),
  mutant("a hold that was released is as good as refused", "void", ' or reason == "released"', ""),
  mutant("a refused retry forgets the first", "void", "tonumber(first[2] or 0), is_unknown", "0, is_unknown"),
  mutant("a refusal may yet be bound", "void", "is_unknown and tonumber", "tonumber"),
  without(
    "the record of a free Idempotency-Key for ever",
    "void",
    '    call("PEXPIRE", idempotency, int(void_until - now))\n',
  ),
  mutant("each void request has a record of its own", "void", "first[3] or request_id", "request_id"),
  without(
    "a record that VOID has left looks like any other",
    "void",
    '      call("HSET", idempotency, "first_void_id", first_void_id)\n',
  ),
  without(
    "a request forgets which record VOID has left",
    "void",
    ', "first_void_id", first_void_id or record.first_void_id',
  ),
  // unclear
  mutant(
    "a bound request's outcome is unknown",
    "unclear",
    'if record.state ~= "held"',
    "if not record.state",
  ),
  without(
    "an unknown outcome is not counted",
    "unclear",
    'call("ZADD", unknown, record.due_at, request_id)\n',
  ),
  without(
    "a request does not know that its outcome is unknown",
    "unclear",
    'call("SET", request, changed_request(record.text, "held", "unknown", answered))\n',
  ),
  mutant("one unknown outcome too many", "include/unknown", "if count < limit", "if count <= limit"),
  mutant("blocked until the last is due", "include/unknown", "count - limit, count - limit", "-1, -1"),
  mutant("blocked until the first is due", "include/unknown", "count - limit, count - limit", "0, 0"),
  without(
    "blocked until the due time though one has ended",
    "include/unknown",
    '    call("HDEL", account, "blocked_until", "unknown_limit")\n',
  ),
  without(
    "an ended hold stays unknown",
    "void",
    "if record.unknown then remove_unknown(account, request_id) end\n",
  ),
  without(
    "a bound request stays unknown",
    "bind",
    '  if string.find(rest, " unknown=", 1, true) then remove_unknown(account, request_id) end\n',
  ),
  mutant("blocked for ever", "admit", "now < tonumber(blocked_until)", "true"),
  mutant("too many unknown outcomes refuse nothing", "admit", "if blocked_until and", "if false and"),
  mutant("one unknown outcome of many slots", "include/unknown", "#unknown == 2 * count", "#unknown > 0"),
  mutant("a refused request is kept like any other", "void", "is_certain and int", "false and int"),
  mutant("an unknown outcome is kept for minutes", "void", "is_certain and int", "int"),
  mutant(
    "kept for longer than it was admitted with",
    "void",
    "math.min(REFUSED_KEPT_MS, tonumber(record.retention_ms))",
    "REFUSED_KEPT_MS",
  ),
  mutant(
    "a refused request counts as one that may have been charged",
    "collect",
    "not is_uncharged and",
    "true and",
  ),
  mutant("an unknown outcome is not told", "admit", 'first[6] or ""', '""'),
  mutant("an unknown outcome outlives its hold", "void", ', "due_at", "unknown")', ', "due_at")'),
  // observe
  mutant("refunded again", "observe", 'if state == "finished" then', 'if state == "never" then'),
  mutant("an ended task changes", "observe", "kept.status == status", "true"),
  mutant("a disputed answer is replaced", "observe", " and not kept.is_disputed then keep()", " then keep()"),
  mutant(
    "what is said of a disputed task is believed",
    "observe",
    "if kept.is_disputed and not is_ours",
    "if false",
  ),
  mutant("the mark is lost at the end", "observe", '(kept.is_disputed and "!" or "")', '""'),
  mutant("refunded though it is off", "observe", ' and refunds_failed == "1"', ""),
  mutant("uncollected is refunded", "include/refund", "record.uncollected or price == 0", "price == 0"),
  mutant("a refund of one credit less", "include/refund", "tonumber(record.price)", "record.price - 1"),
  mutant("completed is refunded", "observe", 'if status == "failed" and refunds_failed', "if refunds_failed"),
  mutant("total used stays after a refund", "include/refund", "price, 0, -price,", "price, 0, 0,"),
  without("the slot stays after the end", "observe", 'call("SREM", slots, request_id)\n'),
  mutant("polled after the end", "observe", 'ZREM", due, request_id)\nreturn', 'ZREM", due, "")\nreturn'),
  mutant(
    "gone after one 404 too few",
    "observe",
    "count < tonumber(gone_max)",
    "count + 1 < tonumber(gone_max)",
  ),
  mutant("gone at once", "observe", " or now - since < tonumber(gone_ms)", ""),
  mutant("gone one ms late", "observe", "now - since < tonumber", "now - since <= tonumber"),
  without(
    "a good answer does not reset",
    "observe",
    '  record.text = changed_request(record.text, state, "gone_count", false, "gone_since", false)\n',
  ),
  without("another's answer is told", "observe", '  kept.status, kept.data = "", ""\n'),
  mutant("expired does not end it", "observe", 'status == "expired" or status', "status"),
  // adjust, refund
  mutant(
    "what is held is taken by hand",
    "adjust",
    "if available + amount < 0",
    "if money.balance + amount < 0",
  ),
  mutant("any reference adjusts again", "adjust", "if earlier then", "if false then"),
  mutant("an adjustment counts as used", "adjust", "amount, 0, 0,", "amount, 0, -amount,"),
  mutant("a refund by hand under any reference", "refund", "if earlier then", "if false then"),
  mutant(
    "a request is refunded by hand again",
    "include/refund",
    "operator and operator.reference then",
    "false then",
  ),
  without(
    "the end of a task does not ask what was refunded",
    "include/refund",
    "  if is_repeat then return 0 end\n",
  ),
  mutant(
    "a refund is known by the request's record alone",
    "include/refund",
    'recorded or call("HEXISTS", refunds, request_id) == 1',
    "recorded",
  ),
  mutant("a failed task is refunded by hand, too", "refund", "request_id, record.refunded)", "request_id)"),
  mutant(
    "a refund by hand gives no room",
    "include/refund",
    "add_spent(spent, record.admitted_at or record.due_at, -price)",
    "add_spent(spent, not (operator and operator.reference) and (record.admitted_at or record.due_at) or nil, -price)",
  ),
  // inspect, credits, recharge, lease, collect
  mutant(
    "another account's task",
    "inspect",
    'if not task or ":account:" .. task.account_id ~= string.match(account_name, ":account:.*$") then',
    "if not task then",
  ),
  mutant(
    "fresh at the bound",
    "inspect",
    "now - observed_at < tonumber(fresh_ms)",
    "now - observed_at <= tonumber(fresh_ms)",
  ),
  mutant("fresh from the future", "inspect", " and observed_at <= now", ""),
  mutant("a revoked key inspects", "inspect", "not key or not key.usable", "not key"),
  mutant("the balance with what is held", "credits", "balance - held", "balance + 0"),
  without("one reference credits twice", "recharge", 'call("HSET", references, reference, stands_for)\n'),
  mutant(
    "another amount is a duplicate",
    "include/references",
    'earlier == stands_for and "duplicate" or "mismatch"',
    '"duplicate"',
  ),
  mutant("no bound on the balance", "recharge", "+ amount > 2 ^ 53 - 1", "+ amount > 2 ^ 60"),
  mutant("refunds may leave the exact integers", "recharge", " + money.used + amount", " + amount"),
  mutant("claimed without a lease", "lease", "now + lease_ms", "now"),
  mutant("claims what is not due", "lease", 'int(from + now), "LIMIT"', '"+inf", "LIMIT"'),
  mutant("a leased task is due as a hold", "lease", "task_score(until_ms), id", "int(until_ms), id"),
  mutant(
    "a leased hold is due as a task",
    "lease",
    'record.state == "held" and int(until_ms) or',
    "false or",
  ),
  mutant("claimed for another account", "lease", '"account_id", "key_id"', '"key_id", "account_id"'),
  mutant("claims one too many", "lease", "0, tonumber(requests_max)", "0, tonumber(requests_max) + 1"),
  mutant("collected one ms late", "collect", "kept_until > now", "kept_until >= now"),
  mutant("an ended request is found at once", "include/request", "now + tonumber(retention_ms or 0)", "now"),
  mutant(
    "the retention is not fixed",
    "admit",
    "or price_text, retention_ms, rest)",
    'or price_text, "", rest)',
  ),
  mutant(
    "a forgotten request gets no retention",
    "bind",
    '  rest = " " .. admission',
    '  subject, rest = string.gsub(subject, "%d+ $", " "), " " .. admission',
  ),
  mutant("another's maximum age is answered", "inspect", 'fixed.max_age_ms or ""', '"1"'),
  mutant(
    "the maximum age is not fixed",
    "bind",
    '.. bound_at .. " " .. fixed',
    '.. bound_at .. " " .. string.gsub(fixed, "^max_age_ms=%d+", "max_age_ms=", 1)',
  ),
  mutant(
    "the upstream is not kept",
    "bind",
    '.. bound_at .. " " .. fixed',
    '.. bound_at .. " " .. string.match(fixed, "^%S+")',
  ),
  without("collected, but still listed", "collect", 'call("ZREM", done, request_id)\n'),
  without(
    "a record is deleted without a trace",
    "collect",
    '    call("HSET", account, "collected_until", due_at)\n',
  ),
  mutant(
    "what is deleted last counts, not what was admitted last",
    "collect",
    " and tonumber(due_at) > tonumber(collected_until or 0) then",
    " then",
  ),
  without("the task stays", "collect", 'call("DEL", task_name) '),
  without("the claim stays", "collect", ' call("DEL", claim)'),
  mutant(
    "a claim of another partition is not looked at",
    "bind",
    "not is_free and claim and taken_by_other(claim, request_id, prefix, task_id)",
    "nil",
  ),
  mutant("no claim is taken", "bind", "local owned = task_text(", "claim = nil\nlocal owned = task_text("),
  mutant("another's claim is taken for its own", "include/task", "read_owner(found) == request_id", "true"),
  without("a task id of another partition goes unmarked", "bind", "  dispute(others, account_id)\n"),
  without("a refused task id is bound in its partition", "bind", '  call("DEL", task)\n'),
];

/** Mistakes in what the ledger check reads, which the model does not play; the check itself must find a sound ledger wrong. */
export const SNAPSHOT_MUTANTS: readonly Mutant[] = [
  mutant("counts the account's fields", "snapshot", '"HLEN", references', '"HLEN", account'),
  mutant("counts one reference too few", "snapshot", '"HLEN", references)', '"HLEN", references) - 1'),
];

/** The check misses what is wrong in a slice, or reads an account whole. */
export const SLICE_MUTANTS: readonly Mutant[] = [
  mutant(
    "a key at the end of a slice is left out",
    "snapshot",
    "    next_rank = rank\n",
    "    next_rank = rank + 1\n",
  ),
  mutant("a long key ends with its first slots", "snapshot", 'page[1] == "0" and "" or page[1]', '""'),
  mutant("the account is read whole", "snapshot", "rank + left - 1)", "-1)"),
  mutant(
    "a long key is read whole",
    "snapshot",
    'slots_from, "COUNT", left)',
    'slots_from, "COUNT", 1000000)',
  ),
];

/** Mistakes in adding open slots to those of an account, which only keys with many of them show. */
export const GATHER_MUTANTS: readonly Mutant[] = [
  mutant(
    "each page of a key is its first",
    "gather",
    "slots_prefix .. key_id, cursor",
    'slots_prefix .. key_id, "0"',
  ),
  without("a key ends with its first page", "gather", '  if cursor ~= "0" then break end\n'),
  mutant("a key's slots are gathered whole", "gather", '"COUNT", left)', '"COUNT", 1000000)'),
  mutant("each key may have as many slots", "gather", "left - #page[2]", "left"),
  mutant("a key is left out", "gather", "done = done + 1", "done = done + 2"),
  mutant("the next page is not said", "gather", "now, done, cursor }", 'now, done, "0" }'),
];

/** Mistakes in adding up holds, which the ledger check needs only of large accounts. */
export const HOLDING_MUTANTS: readonly Mutant[] = [
  mutant("a partition with any number of holds is read", "holding", "> tonumber(holds_max)", "> 1e9"),
  mutant(
    "the last hold that may be read is one too many",
    "holding",
    "> tonumber(holds_max)",
    ">= tonumber(holds_max)",
  ),
  without("another account's hold counts", "holding", "record.account_id == account_id and"),
  mutant("what is bound counts", "holding", 'record.state == "held"', "true"),
  mutant("what has no slot counts", "holding", "id) == 1 then", "id) >= 0 then"),
  mutant("each hold counts once", "holding", "credits + tonumber(record.price or 0)", "credits + 1"),
  mutant(
    "the account holds what its holds add up to",
    "holding",
    '"read", now, held,',
    '"read", now, int(credits),',
  ),
];

/** Mistakes that only a store with an archive shows. */
export const ARCHIVE_MUTANTS: readonly Mutant[] = [
  mutant("a new key is not noted", "issue", 'note_changed(key, "key " .. key_id)', ""),
  mutant("a new account is not noted", "issue", 'note_changed(key, "account " .. account_id)', ""),
  mutant("a changed key is not noted", "include/key_change", 'note_changed(key, "key " .. key_id)', ""),
  mutant(
    "a later change is not counted",
    "include/changes",
    '"HINCRBY", tag .. ":changed", what, 1',
    '"HSET", tag .. ":changed", what, 1',
  ),
  mutant("nothing is noted", "include/changes", "== 1 then", "== 2 then"),
  mutant(
    "a change after the read is lost",
    "archived",
    'if call("HGET", changed, items[at]) == items[at + 1] then',
    "do",
  ),
  mutant("changes stay noted", "archived", 'call("HDEL", changed, items[at])', ""),
  mutant(
    "the first change stays noted",
    "archived",
    "at = requests + 1, #items, 2",
    "at = requests + 3, #items, 2",
  ),
  mutant(
    "the last request is not marked",
    "archived",
    "for at = 1, requests, 2 do",
    "for at = 1, requests - 2, 2 do",
  ),
  mutant(
    "a request is marked that has moved on",
    "archived",
    'if text and string.match(text, "^%S+") == state then',
    "if text then",
  ),
  mutant(
    "another archive's generation is marked",
    "archived",
    "if noted[1] ~= generation then",
    'if noted[1] == "" then',
  ),
  mutant(
    "a batch is noted over one that its copier has not seen",
    "archived",
    '(noted[3] or "0") ~= earlier_batch',
    "false",
  ),
  mutant(
    "an entry is noted over one that its copier has not seen",
    "archived",
    '(noted[2] or "") ~= earlier_newest',
    "false",
  ),
  mutant(
    "a batch is noted that was not announced",
    "archived",
    'noted[4] ~= batch .. " after " .. earlier_batch',
    "not noted[4]",
  ),
  mutant("the first batch is never noted", "archived", '(noted[3] or "0")', '(noted[3] or "")'),
  mutant("the batch is not noted", "archived", '"batch", batch', '"batch", earlier_batch'),
  mutant("the newest entry is not noted", "archived", '"newest", newest', '"newest", "0-0"'),
  mutant("what was looked at is not noted", "archived", '"looked_until", looked_until', '"looked_until", 0'),
  mutant(
    "a request is collected before the archive has it",
    "collect",
    'if generation and record.archived ~= generation .. "/" .. state then',
    "if false then",
  ),
  mutant(
    "a request of another generation is collected",
    "collect",
    'record.archived ~= generation .. "/" .. state',
    "not record.archived",
  ),
  mutant(
    "a request is collected in another state than was copied",
    "archived",
    '"archived", generation .. "/" .. state',
    '"archived", generation .. "/finished"',
  ),
];

/** Mistakes that only entries of one millisecond show, and a claim that was taken before its BIND. */
export const LAYOUT_MUTANTS: readonly Mutant[] = [
  mutant("its own claim is taken for another's", "include/task", "or read_owner(found) == request_id", ""),
  mutant("an id loses its number", "include/checkpoint", '"%-0$"', '"%-%d+$"'),
];

/** Mistakes that only a Redis Cluster shows, where a task id may be disputed before its owner's BIND. */
export const CLUSTER_MUTANTS: readonly Mutant[] = [
  without("a disputed task id goes unmarked", "dispute", "  dispute(task, account_id)\n"),
  mutant("another request's task is marked", "dispute", "read_owner(text) ~= owner then", "false then"),
  mutant("the task id is not taken", "bind", 'call("SET", task, owned, "NX", "GET")', 'call("GET", task)'),
  mutant("a mark before BIND is not found", "include/task", '"^!%S+ (%S+) %? 0$"', '"^(never)$"'),
  mutant("the same account's task is disputed before its BIND", "bind", " and noted ~= account_id", ""),
  mutant("a mark that is out of date counts", "bind", "read_owner(owner) == request_id and noted", "noted"),
  mutant(
    "the last of two requests before BIND counts alone",
    "dispute",
    'account_id = "?"',
    "account_id = account_id",
  ),
];

/** Harmless on one server; found while a slot migrates. */
export const MIGRATION_MUTANTS: readonly Mutant[] = [
  mutant(
    "the hold is given back before the slot",
    "void",
    'call("SREM", slots, request_id)\n',
    'add_to_money(account, -record.price, 0)\ncall("SREM", slots, request_id)\nadd_to_money(account, record.price, 0)\n',
  ),
  mutant(
    "the sweeper forgets the hold before it is void",
    "void",
    'call("SREM", slots, request_id)\n',
    'call("ZREM", due, request_id)\ncall("SREM", slots, request_id)\n',
  ),
  mutant(
    "the request is finished before the refund",
    "observe",
    'call("SREM", slots, request_id)\n',
    'call("SET", request, changed_request(record.text, "finished"))\ncall("SREM", slots, request_id)\n',
  ),
  mutant(
    "a 404 is counted before the next poll is due",
    "observe",
    "  local since = tonumber(record.gone_since or now)\n",
    '  local since = tonumber(record.gone_since or now)\n  call("SET", request, changed_request(record.text, state, "gone_count", int(count)))\n',
  ),
];

/** Mistakes that only a ledger shows that is trimmed. */
export const TRIM_MUTANTS: readonly Mutant[] = [
  mutant(
    "of another entry the account does not matter",
    "trim",
    "found.account_id ~= newest_account or ",
    "",
  ),
  mutant(
    "of another entry the balance does not matter",
    "trim",
    "found.balance_after ~= newest_balance or",
    "",
  ),
  mutant(
    "of another entry the request does not matter",
    "trim",
    '(found.request_id or "") ~= newest_request',
    "false",
  ),
  mutant(
    "of another entry the reference does not matter",
    "trim",
    '(found.reference or "") ~= newest_reference',
    "false",
  ),
  mutant("the newest archived entry leaves, too", "trim", '"(" .. newest_id, "COUNT"', 'newest_id, "COUNT"'),
  mutant("what is not archived leaves", "trim", '"-", "(" .. newest_id', '"-", "+"'),
  mutant("one entry too young leaves", "trim", "tonumber(entry.at) > now - tonumber(kept_ms)", "false"),
  mutant(
    "an entry of exactly that age stays",
    "trim",
    "> now - tonumber(kept_ms)",
    ">= now - tonumber(kept_ms)",
  ),
  mutant("the charge of an open task leaves", "trim", 'if state == "bound" then break end', ""),
  mutant("the charge of a finished task stays", "trim", 'if state == "bound"', "if state"),
  mutant("what does not follow leaves", "trim", "if not add_to_checkpoint(", "if nil == add_to_checkpoint("),
  mutant("what does not follow ends the slice unsaid", "trim", "if removed == 0 then", "if false then"),
  mutant("what leaves before it is not counted", "trim", "if removed == 0 then", "if true then"),
  mutant(
    "the cut is one entry further",
    "trim",
    '"(" .. cut, "+", "COUNT", 1)[1][1])',
    '"(" .. cut, "+", "COUNT", 2)[2][1])',
  ),
  mutant("the cut stays one entry behind", "trim", 'ledger, "(" .. cut, "+"', 'ledger, cut, "+"'),
  mutant("about so many entries leave", "trim", '"MINID", "="', '"MINID", "~"'),
  without(
    "the checkpoint is not written",
    "trim",
    "write_checkpoint(checkpoints_prefix .. account_id, checkpoint)",
  ),
  mutant(
    "a checkpoint begins anew with each slice",
    "trim",
    "or read_checkpoint(checkpoints_prefix .. account_id)",
    'or read_checkpoint(checkpoints_prefix .. "")',
  ),
  without(
    "nothing says where the ledger begins",
    "trim",
    'call("HSET", trimmed, "last_entry", cut, "at", int(cut_at))',
  ),
  mutant("the cut is said to be younger", "trim", "id, math.max(cut_at, tonumber(entry.at))", "id, now"),
  without("what has left is not counted", "trim", 'call("HINCRBY", trimmed, "entries", removed)'),
  without(
    "a request does not say that its charge has left",
    "trim",
    'note_trimmed(charges, "trimmed_charge")\n',
  ),
  without("a grant is not noted", "trim", 'call("ZADD", grants_name, at, grant)'),
  mutant(
    "a grant is noted as older",
    "trim",
    'call("ZADD", grants_name, at, grant)',
    'call("ZADD", grants_name, at - 1000, grant)',
  ),
  mutant(
    "a grant is noted as younger",
    "trim",
    'call("ZADD", grants_name, at, grant)',
    'call("ZADD", grants_name, int(now), grant)',
  ),
  mutant(
    "a reference is forgotten early",
    "trim",
    "now - tonumber(references_ms)",
    "now - tonumber(references_ms) + 1000",
  ),
  mutant("all references are forgotten", "trim", "int(now - tonumber(references_ms))", '"+inf"'),
  without("a forgotten reference stays", "trim", 'call("HDEL", references_prefix .. account_id, reference)'),
  without("a forgotten grant stays noted", "trim", 'call("ZREM", grants_name, grant)'),
  mutant("a forgotten reference is not counted", "trim", "checkpoint.forgotten + 1", "checkpoint.forgotten"),
  mutant(
    "its credits are not counted",
    "trim",
    "checkpoint.forgotten_credits + (tonumber(amount) or 0)",
    "checkpoint.forgotten_credits",
  ),
  mutant("it says that there is no more", "trim", "(removed == most or #old == most) and 1 or 0", "0"),
  mutant("it says that there is always more", "trim", "(removed == most or #old == most) and 1 or 0", "1"),
  mutant("a slice has no bound", "trim", '"COUNT", most)', '"COUNT", 10000)'),
  mutant(
    "a checkpoint's balance is one off",
    "include/checkpoint",
    "checkpoint.balance, checkpoint.entries = id, balance,",
    "checkpoint.balance, checkpoint.entries = id, balance + 1,",
  ),
  mutant(
    "a checkpoint's entries are one off",
    "include/checkpoint",
    "checkpoint.entries + 1",
    "math.max(2, checkpoint.entries + 1)",
  ),
  mutant(
    "a checkpoint is one entry behind",
    "include/checkpoint",
    "checkpoint.entry, checkpoint.balance, checkpoint.entries = id,",
    "checkpoint.entry, checkpoint.balance, checkpoint.entries = checkpoint.entry,",
  ),
  mutant("another chain goes on", "include/checkpoint", "entry.previous ~= checkpoint.entry or ", ""),
  mutant("another balance goes on", "include/checkpoint", " or balance ~= checkpoint.balance + amount", ""),
  mutant("charges do not add up", "include/checkpoint", "checkpoint.consumed - amount", "-amount"),
  mutant("refunds do not add up", "include/checkpoint", "checkpoint.refunded + amount", "amount"),
  mutant("grants do not add up", "include/checkpoint", "checkpoint.recharged + amount", "amount"),
  mutant(
    "a refund counts as a grant",
    "include/checkpoint",
    'elseif kind == "refund" then',
    "elseif false then",
  ),
  mutant("adjustments do not add up", "include/checkpoint", "checkpoint.adjusted + amount", "amount"),
  mutant(
    "an adjustment counts as a grant",
    "include/checkpoint",
    'elseif kind == "adjustment" then',
    "elseif false then",
  ),
  mutant(
    "what is no grant counts among their credits",
    "include/checkpoint",
    'if kind == "purchase" then checkpoint.referenced',
    "if true then checkpoint.referenced",
  ),
  mutant("an adjustment's reason is lost", "include/checkpoint", '"= " .. entry.reason', '"= "'),
  mutant("a reversal's reason is lost", "include/checkpoint", '"- " .. entry.reason', '"- "'),
  mutant("reversals do not add up", "include/checkpoint", "checkpoint.reversed - amount", "-amount"),
  mutant(
    "a reversal counts as a grant",
    "include/checkpoint",
    'elseif kind == "reversal" then',
    "elseif false then",
  ),
  mutant(
    "a trial is shown as a purchase",
    "include/checkpoint",
    'kind == "trial" or kind == "goodwill"',
    "false",
  ),
  mutant(
    "references are not counted",
    "include/checkpoint",
    "checkpoint.references + 1",
    "checkpoint.references",
  ),
  mutant(
    "credits under references do not add up",
    "include/checkpoint",
    "checkpoint.referenced + amount",
    "amount",
  ),
  mutant(
    "the tail is in the wrong order",
    "include/checkpoint",
    "table.insert(checkpoint.lines, 1, tail_line(id, entry))",
    "table.insert(checkpoint.lines, tail_line(id, entry))",
  ),
  mutant("the tail is one entry short", "include/checkpoint", "TAIL_LINES_MAX = 10", "TAIL_LINES_MAX = 9"),
  mutant(
    "a line that repeats the one above is lost",
    "include/checkpoint",
    "then what = above end",
    'then what = "" end',
  ),
  mutant(
    "a line repeats another one",
    "include/checkpoint",
    "line.what == above and",
    'above and above ~= "" and',
  ),
  mutant("a line's own time is lost", "include/checkpoint", '"" or "@" .. at', '""'),
  mutant("the tail is not cut", "include/checkpoint", "checkpoint.lines[TAIL_LINES_MAX + 1] = nil", ""),
  mutant(
    "the tail is forgotten with each slice",
    "include/checkpoint",
    'string.gmatch(tail, "[^\\n]+")',
    'string.gmatch("", "x")',
  ),
  mutant("a charge's endpoint is lost", "include/checkpoint", "what = entry.endpoint end", 'what = "" end'),
  mutant(
    "a refund's task is lost",
    "include/checkpoint",
    'entry.reason .. " " .. entry.task_id',
    "entry.reason",
  ),
  mutant("credits stop at the cut", "credits", 'call("GET", checkpoint) or nil', "nil"),
  mutant(
    "a forgotten reference credits again",
    "include/references",
    "if forgotten > tonumber(looked_up) then",
    "if false then",
  ),
  mutant(
    "what was looked up does not count",
    "include/references",
    "forgotten > tonumber(looked_up)",
    "forgotten > 0",
  ),
  mutant(
    "what was forgotten since the look-up does not count",
    "include/references",
    "forgotten > tonumber(looked_up)",
    'looked_up == "0" and forgotten > 0',
  ),
  mutant(
    "forgotten credits are taken for references",
    "include/references",
    " forgotten (%d+)",
    " forgotten_credits (%d+)",
  ),
  mutant(
    "the entry at the cut counts as there",
    "include/checkpoint",
    "> tonumber(other_sequence)",
    ">= tonumber(other_sequence)",
  ),
  mutant(
    "no account goes on from its checkpoint",
    "include/checkpoint",
    'if previous ~= "" and not is_later(previous, cut) then',
    "if false then",
  ),
  mutant("ENTRIES reads no cut", "entries", 'call("HGET", trimmed, "last_entry") or ""', '""'),
  mutant("SNAPSHOT reads no checkpoint", "snapshot", 'call("GET", checkpoint) or ""', '""'),
];

/** Mistakes in what stops scripts in a frozen partition, or before a slot on the move stops them half-way. */
export const FROZEN_MUTANTS: readonly Mutant[] = [
  mutant("the mark is not seen", "include/frozen", "== 1", "== 2"),
  mutant(
    "another partition's mark is looked for",
    "include/frozen",
    '"^tg:{p%d+}") ..',
    '"^tg:{p%d") .. "0}" ..',
  ),
  ...[
    "admit",
    "bind",
    "void",
    "unclear",
    "lease",
    "collect",
    "issue",
    "change",
    "recharge",
    "dispute",
    "archived",
    "trim",
    "rollup",
    "refused",
    "account",
    "adjust",
    "refund",
    "token",
    "revoke",
    "revoke-token",
    "suspend",
    "observe",
  ].map((file) => mutant(`${file} does not look for the mark`, file, "--@unless_frozen ", "-- ")),
];

/** Mistakes in the count of keys by tier, which the model does not know. */
export const TIER_MUTANTS: readonly Mutant[] = [
  without("a new key is not counted", "issue", "count_tier(key, tiers)\n"),
  without("a changed key is not counted anew", "include/key_change", "  count_tier(key, tiers)\n"),
  mutant("a revoked key is counted", "include/keys", "f[1] and not f[2] and f[1]", "f[1]"),
  mutant("a key is counted only once in its life", "include/keys", "tier == counted", "counted"),
  mutant("it stays counted under its former tier", "include/keys", "counted, -1)", "counted, 0)"),
  mutant("a tier without keys stays", "include/keys", "<= 0 then", "< 0 then"),
  without("where it is counted is not kept", "include/keys", '    call("HSET", key, "counted", tier)\n'),
];

/** Of collecting, where something brings a request to it early, as no sequence of the model does; test/lua/sweeps.test.ts finds it. */
export const COLLECT_MUTANTS: readonly Mutant[] = [
  mutant(
    "kept for the collector's retention",
    "collect",
    "record.retention_ms or restored_ms",
    "restored_ms",
  ),
];

/** Of caps of a month, beyond what the model knows; test/lua/spend-cap.test.ts finds them. */
export const SPENDING_MUTANTS: readonly Mutant[] = [
  mutant(
    "a month ahead takes the key along",
    "include/spent",
    ' and month <= month_of(math.max(spent.clock, store_now("")))',
    "",
  ),
  mutant(
    "a month of which nothing is known is given back to",
    "include/spent",
    "elseif credits > 0 and",
    "elseif",
  ),
  mutant(
    "a rotated key gives room back to itself alone",
    "include/spent",
    "  if f[3] then",
    "  if false then",
  ),
  mutant(
    "a rotated key spends by itself",
    "admit",
    "if key.spends_in then\n  spending",
    "if false then\n  spending",
  ),
  without(
    "what a rotated key spends is not counted",
    "admit",
    "if key.spends_in then change_counters(spending, SPENT_WORD, spent_after) end\n",
  ),
  mutant(
    "a charge just after a month's end is taken for one of the month before",
    "bind",
    "local hour_ago = now - 3600000",
    "local hour_ago = now",
  ),
  mutant(
    "a charge long after its admission does not say when that was",
    "bind",
    "if is_other_day and month_of(admitted_at) ~= month_of(hour_ago) then",
    "if is_other_day and month_of(admitted_at) == month_of(now) then",
  ),
  mutant("a month goes back", "admit", '> tonumber(call("HGET"', '~= tonumber(call("HGET"'),
];

/** Mistakes in what operators change, which the model does not know. */
export const OPERATOR_MUTANTS: readonly Mutant[] = [
  mutant("records are kept for 89 days", "include/audit", "90 * DAY_MS", "89 * DAY_MS"),
  mutant("who did it is lost", "include/audit", '"by", by_of(actor)', '"by", ""'),
  mutant("the request id is lost", "include/audit", 'string.match(actor, "^%S*"))', '"")'),
  mutant(
    "before is after",
    "include/audit",
    '"before", cjson.encode(before)',
    '"before", cjson.encode(after)',
  ),
  mutant("what is the same counts as changed", "include/changes", "if earlier ~= value then", "if true then"),
  mutant("an empty value is kept", "include/changes", "if value == cjson.null then", "if false then"),
  mutant("any revision is good for a key", "change", "if not is_seen(revisions, record[2])", "if false"),
  mutant("a first revision is not 0", "include/changes", '(revision or "0")', '(revision or "")'),
  mutant("a part of a revision is good", "include/changes", '.. ",", "," .. (revision', '.. ",", (revision'),
  mutant("a key's revision stays", "include/key_change", '"revision", 1)', '"revision", 0)'),
  without(
    "a key that is not there is made",
    "change",
    'if not record[1] then return { "missing", now } end\n',
  ),
  mutant("a revoked key changes", "change", "if record[3] then", "if false then"),
  mutant("any revision is good to rotate", "issue", "not is_seen(old_revision, old[2])", "false"),
  mutant("what is not there is rotated", "issue", "not old[1] or", ""),
  mutant(
    "a key's repeat is audited",
    "change",
    'if not before then return { "unchanged", now } end',
    "before, after = before or {}, after or {}",
  ),
  mutant("a new key's secret is audited", "issue", '" sha256 fingerprint', '" fingerprint'),
  mutant("a new key makes any account", "issue", 'if must_exist == "1" and', "if false and"),
  mutant(
    "the credits of a new key are nobody's",
    "issue",
    'grant_fields(kind, "", reference, actor)',
    'grant_fields(kind, "", reference, " ")',
  ),
  mutant("a grant is nobody's", "include/grant", '"by", by_of(actor)', '"by", ""'),
  mutant("a grant is audited with its end", "recharge", "{ balance = int(available) }", "{ balance = 0 }"),
  mutant("an account is made twice", "account", "if creates and record[1]", "if false and record[1]"),
  mutant(
    "an account that is not there is changed",
    "account",
    "if not creates and not record[1]",
    "if false",
  ),
  mutant(
    "any revision is good for an account",
    "account",
    "if not is_seen(revisions, record[2])",
    "if false",
  ),
  mutant("any revision is good to suspend", "suspend", "if not is_seen(revisions, record[2])", "if false"),
  mutant("anybody lifts a suspension", "account", 'may_lift ~= "1" and', "false and"),
  mutant("anybody opens a closed account", "suspend", 'may_lift ~= "1" and', "false and"),
  mutant("closed is less than suspended", "include/accounts", "closed = 2", "closed = 0.5"),
  mutant("a suspension's repeat is audited", "suspend", "if record[3] == status then", "if false then"),
  mutant("a suspended account is not listed", "suspend", "\nlist_account(account, account_id)\n", "\n"),
  without("a suspension leaves the revision", "suspend", 'call("HINCRBY", account, "revision", 1)\n'),
  without(
    "what is not there is suspended",
    "suspend",
    'if not record[1] then return { "missing", now } end\n',
  ),
  mutant("metadata is audited whole", "include/members", "if value ~= others[name] then", "if true then"),
  mutant("a member is audited whole", "include/members", "#value > MEMBER_BYTES_MAX", "false"),
  mutant("all members are audited", "include/members", "bytes <= METADATA_BYTES_MAX", "true"),
  mutant("a character is cut in two", "include/words", "while last > 0 and", "while false and"),
  mutant("a quote in a name ends it", "include/members", "string.byte(json, at) == 34 then", "true then"),
  mutant("a list ends at its first comma", "include/members", "depth = depth + 1", "depth = depth"),
  mutant("a key's repeated revocation is audited", "revoke", "if record[2] then", "if false then"),
  without("a revoked key keeps its revision", "revoke", 'call("HINCRBY", key, "revision", 1)\n'),
  without("a revoked key is still counted", "revoke", "count_tier(key, tiers)\n"),
  without(
    "a key that is not there is revoked",
    "revoke",
    'if not record[1] then return { "missing", now } end\n',
  ),
  mutant("an account gets one key more", "issue", ">= tonumber(keys_max)", "> tonumber(keys_max)"),
  mutant("an account's revision stays", "account", "creates and 0 or 1)", "0)"),
  mutant("an account begins with a revision", "account", "creates and 0 or 1)", "1)"),
  mutant("an account's repeat is audited", "account", "if not creates and not before", "if false"),
  mutant("a new account is not listed", "account", '  call("ZADD", accounts, 0, account_id)\n', ""),
  mutant("a voided hold is not audited", "void", 'if actor ~= "" then', "if false then"),
  mutant("a released task is not audited", "observe", 'if actor ~= "" then', "if false then"),
  mutant(
    "a released task's refund is nobody's",
    "observe",
    'actor ~= "" and { by = by_of(actor) } or nil',
    "nil",
  ),
];

/** Mistakes in adjustments and refunds by hand, which the model does not know. */
export const MONEY_MUTANTS: readonly Mutant[] = [
  mutant("an adjustment is nobody's", "adjust", '"by", by_of(actor)', '"by", ""'),
  without(
    "an adjustment's reference is not kept",
    "adjust",
    'call("HSET", references, reference, stands_for)\n',
  ),
  mutant("what is held is taken", "adjust", "if available + amount < 0", "if money.balance + amount < 0"),
  mutant(
    "the last credit cannot be taken",
    "adjust",
    "if available + amount < 0",
    "if available + amount <= 0",
  ),
  mutant("no bound on an adjusted balance", "adjust", "+ amount > 2 ^ 53 - 1", "+ amount > 2 ^ 60"),
  mutant(
    "an adjustment down is a recharge",
    "adjust",
    'amount < 0 and "consume" or "recharge"',
    '"recharge"',
  ),
  mutant("an adjustment's reason is not kept", "adjust", '"reason", reason, "ref', '"reason", "x", "ref'),
  mutant("another amount is the same adjustment", "include/references", "earlier == stands_for", "earlier"),
  mutant(
    "an adjustment of any account",
    "adjust",
    "if not money then",
    "money = money or { balance = 0, used = 0, available = 0 }\nif false then",
  ),
  mutant(
    "a request's refund is not kept",
    "include/refund",
    "operator and operator.reference then",
    "false then",
  ),
  mutant("a failed task's refund does not count", "refund", "request_id, record.refunded)", "request_id)"),
  mutant(
    "the end of a task does not see an operator's refund",
    "include/refund",
    "is_repeat then",
    "false then",
  ),
  without("a refund's reference is not kept", "refund", 'call("HSET", references, reference, stands_for)\n'),
  mutant("any reference is the same refund", "include/references", "earlier == stands_for", "earlier"),
  mutant("a held request is refunded", "refund", 'state == "held" or', "false or"),
  mutant("a bound request is refunded", "refund", 'or state == "bound" then', "then"),
  mutant("a void request is refunded", "refund", 'state == "void" or', "false or"),
  mutant("an uncollected request is refunded", "refund", "or record.uncollected or", "or"),
  mutant(
    "a failed task is refunded unsought",
    "refund",
    'elseif record.status ~= "completed" then',
    "elseif not record.status then",
  ),
  mutant("a refund without its operator", "include/refund", "operator and operator[field]", "false"),
];

/** Scripts for which a full store would wait: those that make room, that settle, and that stop whoever has filled it. */
export const FULL_MUTANTS: readonly Mutant[] = [
  ...["work-lease", "note", "archived", "trim", "rollup", "collect"],
  ...["bind", "void", "unclear", "refund", "revoke", "suspend", "revoke-token", "webhook"],
].map((file) => mutant(`${file} waits for room`, file, "#!lua flags=allow-oom\n", "#!lua\n"));

/** Scripts that would add to a full store. */
export const FILLING_MUTANTS: readonly Mutant[] = ["admit", "recharge", "adjust"].map((file) =>
  mutant(`${file} fills a full store`, file, "#!lua\n", "#!lua flags=allow-oom\n"),
);

/** Mistakes in the count of refusals, which the model does not know. */
/** Found by the story of test/lua/events.test.ts. */
export const EVENT_MUTANTS: readonly Mutant[] = [
  mutant(
    "at the line is below it",
    "include/ledger",
    "available < tonumber(threshold)",
    "available <= tonumber(threshold)",
  ),
  mutant(
    "the highest of several is told",
    "include/ledger",
    "then lowest = threshold",
    "then lowest = lowest or threshold",
  ),
  mutant(
    "each charge below the line is told",
    "include/ledger",
    "(told and tonumber(lowest) >= told)",
    "false",
  ),
  mutant("a line that nobody was told of counts as told", "include/ledger", "return event_id and", "return"),
  mutant("changed thresholds are not armed", "include/ledger", '"^" .. alerts .. "/(%d+)$"', '"/(%d+)$"'),
  mutant(
    "thresholds that were taken away and set again are not armed",
    "account",
    "if after and after.alerts then",
    "if false then",
  ),
  mutant("a refund arms the line", "include/ledger", "and not is_refund and", "and"),
  mutant(
    "a recharge arms nothing",
    "include/ledger",
    "if is_recharge then return told and",
    "if is_recharge then return false and",
  ),
  mutant(
    "a recharge arms everything",
    "include/ledger",
    'told and (lowest and alerts .. "/" .. int(math.max(told, tonumber(lowest))) or "") or nil',
    '""',
  ),
  mutant(
    "a recharge takes a lower line for told",
    "include/ledger",
    "math.max(told, tonumber(lowest))",
    "tonumber(lowest)",
  ),
  mutant("a key that has ended expires", "expiring", "expires_at > now then", "true then"),
  mutant("what is held can be spent", "include/ledger", "balance - held_before - held", "balance + 0"),
  mutant("a revoked key is not told of", "include/keys", '"webhooks")', '"label")'),
  mutant(
    "a key that a rotation revokes is not told of",
    "include/key_change",
    "if after.revoked_at and after.revoked_at ~= cjson.null then",
    "if false then",
  ),
  mutant(
    "an account is not told that it is suspended",
    "suspend",
    "tell_restricted(account,",
    "local _ = (account and",
  ),
  mutant(
    "an account is not told that it is closed",
    "account",
    "RESTRICTION[after.status] then",
    "false then",
  ),
  mutant("an end is told of once in all", "include/accounts", "(tonumber(revision or 0) + 1)", '"1"'),
  mutant("a revoked key expires", "expiring", "and not record[3] and", "and"),
  mutant("a key is told of eight days ahead", "include/keys", "7 * 86400000", "8 * 86400000"),
  mutant(
    "a key that does not end any more stays listed",
    "include/keys",
    'call("ZREM", list, key_id)',
    "local _",
  ),
  mutant("a key that was told of stays listed", "expiring", 'call("ZREM", list, id)', "local _"),
];

export const REFUSED_MUTANTS: readonly Mutant[] = [
  mutant(
    "an account may have one field more",
    "refused",
    ">= tonumber(account_fields_max)",
    "> tonumber(account_fields_max)",
  ),
  mutant("a day may have one field more", "refused", ">= tonumber(fields_max)", "> tonumber(fields_max)"),
  without(
    "fields of an account are not counted",
    "refused",
    '        call("HINCRBY", counts, account_id, 1)\n',
  ),
  mutant("a refusal counts once", "refused", "field, items[at + 4])", "field, 1)"),
  mutant("hours count together", "refused", '" " .. hour .. " " .. key_id', '" 00 " .. key_id'),
  without("it stays for ever", "refused", 'call("PEXPIRE", counts, lifetime_ms)\n'),
];

/** Mistakes in reading an account's entries back, which the model does not know. */
export const HISTORY_MUTANTS: readonly Mutant[] = [
  mutant("one entry more is looked at", "history", "looked < tonumber", "looked <= tonumber"),
  mutant("one entry more is answered", "history", "#answered < tonumber", "#answered <= tonumber"),
  mutant("a search reads the other way", "history", '"XREVRANGE", ledger, at', '"XRANGE", ledger, at'),
  mutant(
    "a search skips an entry of the account",
    "history",
    "elseif entry.account_id == account_id then",
    "elseif entry.account_id == account_id and not is_search then",
  ),
  mutant(
    "the beginning of the ledger is taken for a gap",
    "history",
    'if is_search and call("EXISTS", trimmed) == 0',
    "if false",
  ),
  mutant(
    "a gap is taken for the beginning",
    "history",
    'if is_search and call("EXISTS", trimmed) == 0',
    "if is_search",
  ),
  mutant(
    "entries of another account are shown",
    "history",
    "elseif entry.account_id == account_id then",
    "elseif true then",
  ),
  mutant("every endpoint is wanted", "history", '(endpoint == "" or entry.endpoint == endpoint)', "true"),
  mutant("an entry before the time is wanted", "history", "not (since and made_at < since)", "true"),
  mutant("an entry of the first ms is not wanted", "history", "made_at < since)", "made_at <= since)"),
  mutant("an entry of the last ms is wanted", "history", "made_at >= before", "made_at > before"),
  mutant("no refund after the time is wanted", "history", 'later_refunds == "1"', "false"),
  mutant("a refund after the time is always wanted", "history", 'later_refunds == "1"', "true"),
  mutant("a charge after the time is wanted", "history", 'and kind == "refund"', ""),
  mutant(
    "it stops before the time that is wanted",
    "history",
    "id_ms < since - SLACK_MS",
    "id_ms < since + 600000",
  ),
  mutant("a charge is a refund", "include/entry", 'is_consume and "charge" or "refund"', '"refund"'),
  mutant("an adjustment upwards is a purchase", "include/entry", 'entry.reason == "" and', "true and"),
  mutant(
    "a purchase is an adjustment",
    "include/entry",
    "tonumber(entry.amount) >= 0",
    "tonumber(entry.amount) < 0",
  ),
];

/** Mistakes in what the money of an account says of its other fields. */
export const EXTRA_MUTANTS: readonly Mutant[] = [
  without("a change of an account is not noted in its money", "account", "mark_extras(account)\n"),
  without("a suspension is not noted in the money", "suspend", "mark_extras(account)\n"),
  mutant("the mark stays", "include/money", "if extras ~= mark then", 'if extras == "" and mark ~= "" then'),
  mutant("a mark is not written", "include/money", 'extras == "" and text or text .. " " .. extras', "text"),
  mutant(
    "the last of the fields is all that counts",
    "include/money",
    'if found[at] then mark = "+" end',
    'mark = found[at] and "+" or ""',
  ),
];

/** Mistakes in fields of a request that the model does not know. */
export const PACKED_MUTANTS: readonly Mutant[] = [
  mutant("a request forgets its callBackUrl", "admit", 'if callback ~= "" then rest', "if false then rest"),
  mutant("the reason of a price is not encoded", "admit", "encoded(details)", "details"),
  mutant(
    "the reason of a price is charged encoded",
    "include/request",
    "return at and decoded(",
    "return at and (",
  ),
  mutant("a fingerprint ends at a space", "void", 'encoded(first[4] or "")', 'first[4] or ""'),
  mutant("a fingerprint is not kept", "void", '"fingerprint", fingerprint)', '"fingerprint", nil)'),
  mutant("only spaces are encoded", "include/request", '"[%s%%]"', '"%s"'),
];

/** Terms of a key after a change of it. */
export const TERMS_MUTANTS: readonly Mutant[] = [
  without("a changed key keeps its terms", "include/key_change", '  call("HDEL", key, "terms")\n'),
  without("a revoked key keeps its terms", "revoke", 'call("HDEL", key, "terms")\n'),
  mutant(
    "terms of one key are those of all",
    "include/limits",
    "local terms = COMMON[text]",
    "local _, terms = next(COMMON)",
  ),
];

/** Mistakes in giving back what was charged too much. */
export const CORRECTION_MUTANTS: readonly Mutant[] = [
  mutant("any reference corrects again", "correct", "if earlier then", "if false then"),
  mutant("a refunded charge is corrected", "correct", "if is_before then", "if false then"),
  mutant("a charge that was taken again is not corrected", "correct", "not record.charged_again and ", ""),
  mutant(
    "a corrected task never completes",
    "reclaim",
    " and not is_corrected(account, refunds, request_id)",
    "",
  ),
  mutant("a running task is corrected", "correct", 'record.state == "bound"', "false"),
  without("a correction may be refunded", "correct", 'call("HSET", refunds, request_id, reference)\n'),
  without(
    "a correction's reference is not kept",
    "correct",
    'call("HSET", references, reference, stands_for)\n',
  ),
  mutant("a correction counts as not used", "correct", "credits, 0, 0,", "credits, 0, -credits,"),
  mutant("a correction is nobody's", "correct", '"by", by_of(actor)', '"by", ""'),
  mutant("a correction forgets its request", "correct", "cjson.encode(request_id) ..", "'\"\"' .."),
];

/** Mistakes in what a request costs, which the model does not know. */
export const PRICE_MUTANTS: readonly Mutant[] = [
  mutant("a price is rounded down", "include/price", "hundredths + 99)", "hundredths)"),
  mutant("a multiplier is cut", "include/price", "multiplier * 100 + 0.5", "multiplier * 100"),
  mutant(
    "a list begins a millisecond late",
    "include/price",
    "tonumber(from) <= now",
    "tonumber(from) < now",
  ),
  mutant(
    "a list that begins later is in force",
    "include/price",
    "if tonumber(from) <= now then",
    "if true then",
  ),
  mutant(
    "an entry does not say the list price",
    "include/price",
    '"list_price":\' .. int(price)',
    '"list_price":\' .. 0',
  ),
  mutant(
    "a request holds the list price",
    "admit",
    "details and int(price) or price_text, ret",
    "price_text, ret",
  ),
  mutant("a request does not keep why", "admit", '" details=" .. encoded(details)', '""'),
  mutant("an entry does not say why", "bind", "if details then more", "if false then more"),
  mutant("an admission does not say the price", "admit", "key.noted, details and int(price))", "key.noted)"),
  mutant(
    "a refusal does not say the price",
    "admit",
    "int(available), details and int(price)) end",
    "int(available)) end",
  ),
  mutant(
    "a repeat does not say the price",
    "admit",
    'details and { "", read_request(request).price } or {}',
    "{}",
  ),
  mutant(
    "a cap is of the list price",
    "admit",
    "spent + price > tonumber(key.monthly_credits)",
    "spent + tonumber(price_text) > tonumber(key.monthly_credits)",
  ),
];

/** Mistakes in grants of several kinds and in taking them back, some of which the model does not know. */
export const REVERSAL_MUTANTS: readonly Mutant[] = [
  mutant(
    "what is held is taken back",
    "reverse",
    "granted - before, available)",
    "granted - before, money.balance)",
  ),
  mutant("more than was granted is taken", "reverse", "requested, granted - before,", "requested,"),
  mutant("more than was asked for is taken", "reverse", "math.min(requested, ", "math.min("),
  mutant("a grant is reversed again", "reverse", "of, int(before + amount)", "of, int(amount)"),
  mutant("the sum of reversals is the last one", "reverse", 'call("HGET", reversed, "") or 0)', "0)"),
  mutant("any reference reverses again", "reverse", "if earlier then", "if false then"),
  mutant("another amount is the same reversal", "include/references", "earlier == stands_for", "earlier"),
  without(
    "a reversal's reference is not kept",
    "reverse",
    'call("HSET", references, reference, stands_for)\n',
  ),
  mutant("a reversal is nobody's", "reverse", '"by", by_of(actor)', '"by", ""'),
  mutant("a reversal counts as used", "reverse", "-amount, 0, 0,", "-amount, 0, amount,"),
  mutant("a reversal is an adjustment", "reverse", '"kind", "reversal", ', ""),
  mutant("a reversal forgets its grant", "reverse", "cjson.encode(of) .. ',", "'\"\"' .. ',"),
  mutant("an adjustment is reversed", "reverse", '"^(%d+)$"', '"(%d+)$"'),
  mutant("a trial stays", "reverse", '"^trial (%d+)$"', '"^tri (%d+)$"'),
  mutant("goodwill stays", "reverse", '"^goodwill (%d+)$"', '"^good (%d+)$"'),
  mutant("nothing is reversed", "reverse", "if amount <= 0", "if amount < 0"),
  mutant("a forgotten grant is none", "reverse", "or granted_text", 'or ""'),
  mutant(
    "a reversal of any account",
    "reverse",
    "if not money then",
    "money = money or { balance = 0, used = 0, available = 0 }\nif false then",
  ),
  mutant(
    "a reversal may repeat a forgotten one",
    "include/references",
    "if forgotten > tonumber(looked_up)",
    "if false",
  ),
  mutant("another kind is the same grant", "include/grant", 'kind == "" and credits', "true and credits"),
  mutant("every grant is a purchase", "include/grant", '{ "kind", kind }', '{ "kind", "" }'),
  mutant("a package is forgotten", "include/grant", '{ "details", details }', '{ "details", "" }'),
  mutant("a closed account is credited", "recharge", 'call("HGET", account, "status") == "closed"', "false"),
  mutant("a closed account gets a key", "issue", 'call("HGET", account, "status") == "closed"', "false"),
  mutant("a key's credits are sold", "issue", "grant_fields(kind,", 'grant_fields("",'),
];

/** Mistakes in rolling the ledger up into usage, which the model does not know. */
export const ROLLUP_MUTANTS: readonly Mutant[] = [
  without("the cursor stays", "rollup", 'call("HSET", rolled_name, "entry", entries[#entries][1])'),
  mutant("the cursor falls behind", "rollup", "entries[#entries][1])", "entries[1][1])"),
  mutant(
    "an entry counts twice",
    "rollup",
    'call("XRANGE", ledger, "(" .. rolled[1], "+"',
    'call("XRANGE", ledger, rolled[1], "+"',
  ),
  without("entries are not counted up", "rollup", 'call("HINCRBY", rolled_name, "entries", #entries)'),
  without("notes stay", "rollup", 'if #notes > 0 then call("ZREMRANGEBYRANK", ended, 0, #notes / 2 - 1) end'),
  mutant("a note too many is removed", "rollup", "#notes / 2 - 1) end", "#notes / 2) end"),
  mutant("a refund counts as a charge", "rollup", '"refunded", number)', '"charged", number)'),
  mutant("a charge is negative", "rollup", "-amount * count", "amount * count"),
  mutant("a request counts twice", "rollup", "(counts[group] or 0) + 1", "(counts[group] or 0) + 2"),
  mutant("an adjustment is a purchase", "rollup", 'adjustment = "adjusted"', 'adjustment = "purchased"'),
  mutant("a stored kind does not count", "include/entry", "if entry.kind then", "if false then"),
  mutant("a trial is a purchase", "rollup", 'trial = "trials"', 'trial = "purchased"'),
  mutant("goodwill is a purchase", "rollup", 'goodwill = "goodwill"', 'goodwill = "purchased"'),
  mutant("a reversal is negative", "rollup", '"reversed", -number)', '"reversed", number)'),
  without("the totals are not kept", "rollup", "  count(sum_of(names.totals, names.day, month_at))\n"),
  mutant("earlier numbers are forgotten", "rollup", "int(number + more)", "int(more)"),
  mutant(
    "charges of two days are of one",
    "rollup",
    "local day = floor(at / DAY_MS)\n    local counts",
    "local day = floor(now / DAY_MS)\n    local counts",
  ),
  mutant("what is between two numbers is not zero", "rollup", 'numbers[empty] = "0"', 'numbers[empty] = "1"'),
  mutant(
    "the last number is cut off",
    "rollup",
    'table.concat(numbers, " ")',
    'table.concat(numbers, " ", 1, last - 1)',
  ),
  mutant("there is room without end", "rollup", 'call("HLEN", name) >= tonumber(fields_max)', "false"),
  mutant("there is room for one more", "rollup", ">= tonumber(fields_max)", "> tonumber(fields_max)"),
  mutant("the totals have no room either", "rollup", 'string.find(field, " ", 1, true)', "true"),
  mutant("kept for a day less", "rollup", "31 * DAY_MS", "30 * DAY_MS"),
  mutant(
    "a day without its month",
    "include/clock",
    "DAYS[number] = known",
    "DAYS[0] = known\n    DAYS[number + 1] = known",
  ),
  mutant(
    "entries that had left count as missing",
    "rollup",
    "- tonumber(rolled[3]) - tonumber",
    "- tonumber",
  ),
  mutant("it begins at the first entry where one has left", "rollup", 'cut[1] or "0-0"', '"0-0"'),
  mutant(
    "usage seems to go back to the beginning",
    "rollup",
    'cut[2] and int(tonumber(cut[2]) + 1) or "0"',
    '"0"',
  ),
  without(
    "uncollected credits are not counted",
    "rollup",
    '    add(day, account_id, endpoint, key_id, "uncollected_credits", tonumber(number))\n',
  ),
  mutant(
    "a task that completed late has failed, too",
    "rollup",
    'add(day, account_id, endpoint, key_id, what == "unfailed" and "failed" or what, what == "unfailed" and -1 or 1)',
    'if what ~= "unfailed" then add(day, account_id, endpoint, key_id, what, 1) end',
  ),
  mutant("a task that completed late failed twice", "rollup", 'what == "unfailed" and -1 or 1', "1"),
  mutant("failed tasks count seconds", "rollup", 'elseif what == "completed"', "elseif true"),
  mutant("seconds are cut", "rollup", "/ 1000 + 0.5", "/ 1000"),
  mutant("seconds are less than none", "rollup", "math.max(0, ended_at - bound_at)", "(ended_at - bound_at)"),
  mutant("there seems to be no more", "rollup", "local has_more = #entries == most or", "local has_more ="),
  mutant(
    "a month begins a day late",
    "include/clock",
    "(days - day + 1) * DAY_MS",
    "(days - day + 2) * DAY_MS",
  ),
  mutant("the first of a month is a 0", "include/clock", "/ 5) + 1\n", "/ 5)\n"),
  mutant("months are one off", "include/clock", "shifted + 3 or", "shifted + 2 or"),
  mutant("what is not counted may leave", "trim", "if rolled and is_later(id, rolled) then break end", ""),
];

/** Mistakes in noting ends of tasks for ROLLUP, which the model does not know. */
export const ENDED_MUTANTS: readonly Mutant[] = [
  without(
    "an end is not noted",
    "observe",
    "note_ended(request, now, request_id, account_id, record.key_id, record.endpoint, status, record.bound_at)",
  ),
  mutant(
    "a failed task has completed",
    "observe",
    "record.endpoint, status, ",
    'record.endpoint, "completed", ',
  ),
  mutant("a late completion has failed, too", "reclaim", '"unfailed", record', '"completed", record'),
  mutant(
    "a late completion is not noted",
    "reclaim",
    'record.endpoint, "completed"',
    'record.endpoint, "unfailed"',
  ),
  mutant(
    "a failure is taken back on another day",
    "reclaim",
    "note_ended(request, record.finished_at",
    "note_ended(request, now + 86400000",
  ),
  mutant("when it was bound is not noted", "observe", "status, record.bound_at)", "status, 0)"),
  without(
    "an uncollected task is not noted",
    "bind",
    '    note_ended(request, now, request_id, account_id, key_id, endpoint, "uncollected", price)\n',
  ),
  mutant("an uncollected task costs nothing", "bind", '"uncollected", price)', '"uncollected", 0)'),
  mutant(
    "key and account are mixed up",
    "include/rollup_note",
    "account_id, key_id, endpoint }",
    "key_id, account_id, endpoint }",
  ),
];

/** Mistakes in the lists of accounts, which the model does not know. */
export const LISTS_MUTANTS: readonly Mutant[] = [
  without("the former label stays", "account", "unlist_account(account, account_id)\n"),
  mutant("the new label is not listed", "account", "\nlist_account(account, account_id)\nif", "\nif"),
  mutant("labels keep their case", "include/accounts", "string.lower(record[1])", "record[1]"),
  mutant(
    "accounts are listed by label alone",
    "include/accounts",
    '.. " " .. account_id },\n    { tag .. ":inactive"',
    '},\n    { tag .. ":inactive"',
  ),
  mutant("the status is not listed", "include/accounts", "record[2] and record[2] ..", "false and"),
];

/** Mistakes in the index of metadata. */
export const METADATA_MUTANTS: readonly Mutant[] = [
  mutant(
    "metadata is not indexed",
    "account",
    "if after and after.metadata then index",
    "if false then index",
  ),
  mutant("former values stay", "include/metadata", "#former > 0", "#former < 0"),
  mutant("new values are not listed", "include/metadata", "#listed > 0", "#listed < 0"),
  mutant(
    "the place of an account is another's",
    "include/metadata",
    '1, 8) .. " " .. account_id',
    '1, 8) .. " "',
  ),
  mutant("values keep their escapes", "include/metadata", `if first == '"' then`, "if false then"),
  mutant("lists and null are indexed", "include/metadata", '"{[n"', '"?"'),
  mutant("every name is indexed", "include/metadata", "string.find(value.name, NAME)", "true"),
  mutant(
    "equal values of two names share a place",
    "include/metadata",
    "value.name .. value.text",
    "value.text",
  ),
];

/** Mistakes in the index of words. */
export const WORD_MUTANTS: readonly Mutant[] = [
  mutant(
    "former words of an account stay",
    "account",
    '_words_of_account("ZREM"',
    '_words_of_account("ZADD"',
  ),
  mutant(
    "words of an account are not listed",
    "account",
    '_words_of_account("ZADD"',
    '_words_of_account("ZREM"',
  ),
  mutant("a new label alone changes nothing", "account", "(after.label or after.metadata)", "after.metadata"),
  mutant("new metadata alone changes nothing", "account", "(after.label or after.metadata)", "after.label"),
  mutant("labels of new keys are not listed", "issue", '_text("ZADD"', '_text("ZREM"'),
  mutant("former labels of keys stay", "include/key_change", '_text("ZREM"', '_text("ZADD"'),
  mutant("later labels of keys are not listed", "include/key_change", '_text("ZADD"', '_text("ZREM"'),
  mutant("references are not listed", "include/references", '_reference("ZADD"', '_reference("ZREM"'),
  mutant("forgotten references stay", "include/references", '_reference("ZREM"', '_reference("ZADD"'),
  mutant("capitals stay", "include/words", "string.lower(text)", "text"),
  mutant("bytes beyond ASCII part words", "include/words", "%w\\128-\\255", "%w"),
  mutant("only the first word is listed", "include/words", '" ", at)', '" ", 1)'),
  mutant("a text is cut within a character", "include/words", "last > 0 and", "false and"),
  mutant("true and false are listed", "include/accounts", "value.is_flag and {} or ", ""),
  mutant(
    "a reference has as many words as a label",
    "include/words",
    "_REFERENCE_MAX = 4",
    "_REFERENCE_MAX = 8",
  ),
];

/** Mistakes in the index of references. */
export const REFERENCE_MUTANTS: readonly Mutant[] = [
  without("a grant is not listed", "recharge", "index_reference(account, reference, account_id, entry)\n"),
  without(
    "an adjustment is not listed",
    "adjust",
    "index_reference(account, reference, account_id, entry)\n",
  ),
  without("first credits are not listed", "issue", "  index_reference(key, reference, account_id, entry)\n"),
  without("what is forgotten stays listed", "trim", "    unindex_reference(ledger, reference, account_id)\n"),
  mutant(
    "a place has room for one more",
    "include/references",
    "#others >= INDEXED_MAX",
    "#others > INDEXED_MAX",
  ),
  mutant(
    "an account takes the place of the others",
    "include/references",
    "if #others >= INDEXED_MAX then",
    "if #others >= INDEXED_MAX then others = {} end\n  if false then",
  ),
  without(
    "an entry beyond the twenty is not kept",
    "include/references",
    '    call("HSET", hash, field .. " " .. account_id, entry)\n',
  ),
  without(
    "an entry beyond the twenty stays",
    "include/references",
    '  call("HDEL", hash, field .. " " .. account_id)\n',
  ),
  mutant("the others leave, too", "include/references", "if #others == 0 then", "if true then"),
  mutant("an entry is not known", "include/references", 'account_id .. "@" .. entry', "account_id"),
  mutant("an empty place stays", "include/references", "if #others == 0 then", "if false then"),
  mutant(
    "another part of the digest",
    "include/references",
    "string.sub(digest, 3, 14)",
    "string.sub(digest, 4, 15)",
  ),
];

/** Copies the scripts to a temporary folder with this one mistake in them. @throws Error unless `find` stands there once */
export async function plant(mutant: Mutant): Promise<string> {
  const text = await mutatedText(mutant);
  const folder = await mkdtemp(join(tmpdir(), "tollgate-mutant-"));
  await cp(LUA_FOLDER, folder, { recursive: true });
  await writeFile(scriptPaths(folder).get(mutant.file)!, text);
  return folder;
}

/** Its file with the mistake. @throws Error unless `find` stands there once */
export async function mutatedText({ what, file, find, put }: Mutant): Promise<string> {
  const text = readScript(file);
  const found = text.split(find).length - 1;
  if (found !== 1 || find === put) throw new Error(`mutant "${what}": ${found} places in ${file}.lua`);
  return text.replace(find, () => put);
}

/** Mistakes by which a charge goes back twice. */
export const REFUND_RACE_MUTANTS: readonly Mutant[] = [
  mutant(
    "no request was refunded",
    "include/refund",
    'return recorded or call("HEXISTS", refunds, request_id) == 1, refunds',
    "return false, refunds",
  ),
];

/** Mistakes by which one request ends or hides what another one with the same Idempotency-Key has. */
export const EQUAL_KEY_MUTANTS: readonly Mutant[] = [
  mutant("a repeat is admitted while the first is held", "admit", "if first[1] then", "if first[3] then"),
  mutant(
    "the VOID of a request that was never admitted frees the Idempotency-Key",
    "void",
    'call("ZREM", due, request_id)\n  if reason == "unsent" then',
    'call("ZREM", due, request_id)\n  if idempotency then call("DEL", idempotency) end\n  if reason == "unsent" then',
  ),
  mutant(
    "a VOID frees the Idempotency-Key of another request",
    "void",
    "if first and (first[1] or request_id) == request_id then",
    "if first then",
  ),
  mutant("a VOID ends any hold of its account", "void", '"SREM", slots, request_id', '"DEL", slots'),
  mutant(
    "an unknown outcome is told of another request",
    "unclear",
    'if idempotency and call("HGET", idempotency, "request_id") == request_id then',
    "if idempotency then",
  ),
  mutant(
    "a late task takes the Idempotency-Key from another request",
    "bind",
    'idempotency and not is_others and (outcome ~= "uncollected" or is_lost)',
    "idempotency",
  ),
  mutant("one Idempotency-Key is charged twice", "bind", "= covered and not is_others", "= covered"),
  mutant(
    "the tombstone is overlooked",
    "admit",
    'if call("SETNX", request, record) == 0 then return refuse("admitted") end\n',
    'if (read_state(request) or "void") ~= "void" then return refuse("admitted") end\ncall("SET", request, record)\n',
  ),
];

/** Mistakes in the tokens of the management API. */
export const TOKEN_MUTANTS: readonly Mutant[] = [
  mutant("its digest is audited", "token", '" sha256 root "', '" root "'),
  mutant(
    "one is made beyond the bound",
    "token",
    'call("ZCARD", tokens) >= most then return',
    'call("ZCARD", tokens) > most then return',
  ),
  mutant("operators make one beyond theirs", "token", "relatives >= most", "relatives > most"),
  mutant("a family has one more", "token", "relatives >= family_most", "relatives > family_most"),
  mutant("tokens take the operators' places", "token", 'parent ~= "" and call', "call"),
  without(
    "an expired one keeps its place in the family",
    "token",
    'call("ZREMRANGEBYSCORE", family, "-inf", int(now))\n',
  ),
  mutant("one that never expires has no place", "token", '"+inf", token_id', '"-inf", token_id'),
  mutant("a revoked parent makes one", "token", "or record[2] or", "or"),
  mutant("an expired parent makes one", "token", "or has_expired then", "then"),
  mutant("a parent that was removed makes one", "token", "if not record[1] or", "if"),
  mutant("an ended one keeps its room", "token", "is_full and now or", "false or"),
  mutant("an ended one is removed early", "token", "is_full and now or", "true and now or"),
  mutant("one that has not ended is removed", "token", "int(latest)", '"+inf"'),
  without("a removed one is still listed", "token", '    call("ZREM", tokens, id)\n'),
  mutant("a removed one leaves its record", "token", '"DEL", prefix .. id, families', '"DEL", families'),
  mutant("a removed one leaves its family", "token", ", families .. id)", ")"),
  mutant("a removed one leaves its digest", "token", "if sha256 then", "if false then"),
  without("a removed one is removed again", "token", '    call("ZREM", ended_tokens, id)\n'),
  mutant("an expiry is not noted", "token", "if after.expires_at then", "if false then"),
  mutant("who made it is not kept", "token", '"by", by_of(actor), unpack', '"by", "", unpack'),
  mutant("a new one is not listed", "token", '\ncall("ZADD", tokens, int(now), token_id)\n', "\n"),
  without("a revoked token is found", "revoke-token", '  call("HDEL", token_ids, sha256)\n'),
  mutant("a repeat revokes anew", "revoke-token", "if not record[2] then", "if true then"),
  without("a revocation is not noted", "revoke-token", '  call("ZADD", ended_tokens, int(now), id)\n'),
  without("a revoked one keeps its place", "revoke-token", '  call("ZREM", family, id)\n'),
  without(
    "a revoked one keeps its operators' place",
    "revoke-token",
    '  call("ZREM", operators_family, id)\n',
  ),
  mutant("one that is not there is revoked", "revoke-token", "if not record[1] then", "if false then"),
  mutant("children outlive their parent", "revoke-token", "= descendants()", "= {}"),
  mutant("all end in one call", "revoke-token", "REVOKED_MAX = 40", "REVOKED_MAX = 500"),
  mutant("those that are left are not said", "revoke-token", "math.max(0, #found - REVOKED_MAX)", "0"),
  mutant("only children end", "revoke-token", "at = call", "at = #path < 2 and call"),
  mutant("the whole family ends", "revoke-token", "depth = at and depths[at]", "depth = 1"),
  mutant(
    "parents end before their children",
    "revoke-token",
    "depths[one] > depths[other]",
    "depths[one] < depths[other]",
  ),
  mutant(
    "the first of those that are left is removed",
    "revoke-token",
    "local is_done = #found <= REVOKED_MAX",
    "local is_done = true",
  ),
];

/** Requests that passed while the store was away; the model knows none. */
export const UNMETERED_MUTANTS: readonly Mutant[] = [
  mutant(
    "an unmetered task takes the Idempotency-Key of a charged one",
    "bind",
    "idempotency and not is_others and (",
    "idempotency and (",
  ),
  mutant(
    "an unmetered task takes a slot",
    "bind",
    'if not is_unmetered then call("SADD"',
    'if true then call("SADD"',
  ),
  mutant("nothing marks an unmetered task", "bind", 'is_unmetered and " unmetered=1" or ""', '"" or ""'),
  mutant(
    "an unmetered task is late or uncollected",
    "bind",
    'state ~= "held" and not is_unmetered then',
    'state ~= "held" then',
  ),
  mutant(
    "the ledger does not say why nothing was charged",
    "bind",
    'is_unmetered and { "reason", "unmetered" } or nil',
    "nil",
  ),
  mutant(
    "a failed unmetered task is refunded",
    "include/refund",
    "record.uncollected or price == 0",
    "record.uncollected",
  ),
  mutant(
    "an operator refunds an unmetered task",
    "refund",
    " or tonumber(record.price or price) == 0 then",
    " then",
  ),
];

/** Of restrictions of keys, which the model does not know; test/lua/restrictions.test.ts finds them. */
export const RESTRICTION_MUTANTS: readonly Mutant[] = [
  without(
    "ADMIT does not ask for the restrictions",
    "admit",
    'if (key.restrictions or "") ~= restrictions then return refuse("restricted") end\n',
  ),
  mutant(
    "restrictions that the key has no more are good",
    "admit",
    'if (key.restrictions or "") ~= restrictions',
    "if key.restrictions and key.restrictions ~= restrictions",
  ),
  mutant(
    "a request that was judged by nothing passes",
    "admit",
    'if (key.restrictions or "") ~= restrictions',
    'if restrictions ~= "" and (key.restrictions or "") ~= restrictions',
  ),
  without("replies do not say the restrictions", "include/reply", " and not key.restrictions"),
];

/** Of the lists of accounts by balance and spending; test/lua/account-ranks.test.ts finds them. */
export const RANK_MUTANTS: readonly Mutant[] = [
  without("a new account is not listed", "account", "  rank_new_account(account, account_id)\n"),
  without("nothing is listed", "rollup", "write_ranks(ledger, now, tonumber(rolled[4]))\n"),
  mutant("a refund is spending", "include/ranks", "refunded = -1", "refunded = 1"),
  mutant("a purchase is spending", "include/ranks", "refunded = -1 }", "refunded = -1, purchased = 1 }"),
  without(
    "grants move nobody in the list",
    "rollup",
    "    note_balance(entry.account_id, nth, entry.balance_after)\n",
  ),
  without("charges move nobody in the list", "rollup", "    note_balance(account_id, nth, balance)\n"),
  mutant("the balance is that after an earlier entry", "include/ranks", "noted.nth < nth", "noted.nth > 0"),
  mutant("the balance is that after the first entry", "include/ranks", "noted.nth < nth", "false"),
  mutant("spending is kept for ever", "include/ranks", 'call("PEXPIREAT", list, int(ends_at))', ""),
  mutant(
    "the balance is what was counted",
    "include/ranks",
    "#pairs_of + 1] = noted.balance",
    "#pairs_of + 1] = 1",
  ),
  mutant("a page begins with its place", "ranked", "found == member) then first", "found == nil) then first"),
  mutant("a place among ties is their first", "ranked", "while first < last do", "while false do"),
];

/** Mistakes in the lists by seven days. */
export const WEEK_MUTANTS: readonly Mutant[] = [
  without("a day does not leave the week", "rollup", "  has_more = is_behind\n"),
  mutant("a day leaves the week a day late", "include/ranks", "- WEEK_DAYS + 1", "- WEEK_DAYS"),
  mutant("a day leaves the week a day early", "include/ranks", "- WEEK_DAYS + 1", "- WEEK_DAYS + 2"),
  mutant(
    "only the first accounts leave",
    "include/ranks",
    "return first, at + LEAVING_MAX, true",
    "return first + 1, 0, first + 1 < begins",
  ),
  mutant(
    "an account of each step is left out",
    "include/ranks",
    "return first, at + LEAVING_MAX, true",
    "return first, at + LEAVING_MAX + 1, true",
  ),
  mutant(
    "a step ends the walk",
    "include/ranks",
    "return first, at + LEAVING_MAX, true",
    "return first, at + LEAVING_MAX, false",
  ),
  mutant(
    "one day leaves per roll-up",
    "include/ranks",
    "return first + 1, 0, first + 1 < begins",
    "return first + 1, 0, false",
  ),
  mutant(
    "its place is not kept",
    "rollup",
    'call("HSET", rolled_name, "week", int(first), "week_at", int(at))',
    "",
  ),
  mutant(
    "what came late counts for ever",
    "include/ranks",
    "if day_starts[day] >= week_at then",
    "if true then",
  ),
  mutant(
    "days left stay at the pace of then",
    "include/ranks",
    "      rank_days_left(tag, account_id, tonumber(known[nth]) or 0, weeks[nth])\n",
    "",
  ),
  mutant(
    "grants leave the days as they were",
    "include/ranks",
    "if week then rank_days_left",
    "if false then rank_days_left",
  ),
  mutant(
    "accounts without spending have days left",
    "include/ranks",
    '    call("ZREM", tag .. ":days-left", account_id)\n',
    "",
  ),
];

/** Mistakes in the deliveries of webhooks; the model knows none. */
export const WEBHOOK_MUTANTS: readonly Mutant[] = [
  without(
    "an event is queued twice",
    "include/events",
    '  if call("EXISTS", event) == 1 then return id end\n',
  ),
  mutant(
    "endpoints get videos that were not charged",
    "observe",
    "if (webhooks or callback) and not record.uncollected then",
    "if webhooks or callback then",
  ),
  mutant("all endpoints get all events", "include/events", '"," .. kind .. ",", 1, true)', '"", 1, true)'),
  mutant("long data is sent", "include/events", "#data > DATA_BYTES_MAX", "#data > 2 * DATA_BYTES_MAX"),
  mutant("one more waits than may", "include/events", ") < WAITING_MAX", ") <= WAITING_MAX"),
  mutant(
    "retries do not count as waiting",
    "include/deliveries",
    ' + call("ZCARD", name_in(tag, "retries", queue_id))',
    "",
  ),
  mutant(
    "an account fills its partition",
    "include/deliveries",
    "+ bytes > share * ACCOUNT_BYTES_MAX",
    "+ bytes < 0",
  ),
  mutant(
    "a partition fills Redis",
    "include/deliveries",
    "+ bytes > share * PARTITION_BYTES_MAX",
    "+ bytes < 0",
  ),
  without(
    "ended deliveries keep their room",
    "include/events",
    "    remove_delivery(tag, endpoint_id, oldest)\n",
  ),
  mutant(
    "history leaves no room",
    "include/deliveries",
    "lacks_room(tag, account_id, 0, 0.5) and",
    "false and",
  ),
  mutant("what ends is forgotten at once", "include/deliveries", "FINISHED_MIN = 20", "FINISHED_MIN = 0"),
  mutant(
    "deliveries are not counted",
    "include/events",
    "queue_id, bytes = endpoint_id, DELIVERY_BYTES +",
    "queue_id, bytes = endpoint_id,",
  ),
  mutant("addresses of requests are not counted", "include/events", "bytes + #url", "bytes"),
  without(
    "answers are not counted",
    "include/deliveries",
    "  if more ~= 0 then count_bytes(tag, account_id, more) end\n",
  ),
  mutant(
    "answers have no bound",
    "include/deliveries",
    "more > 0 and lacks_room(tag, account_id, more, 1)",
    "more < 0",
  ),
  mutant(
    "more waits once it is sent again",
    "queue-delivery",
    "count_waiting(tag, queue_id) >= WAITING_MAX",
    "false",
  ),
  without("what is dropped is not said", "include/deliveries", '  call("HINCRBY", endpoint, "dropped", 1)\n'),
  without(
    "what is dropped is not counted",
    "include/deliveries",
    '  call("HINCRBY", tag .. ":webhook-totals", " dropped", 1)\n',
  ),
  mutant("bytes are never given back", "include/deliveries", '(%S+)"), -bytes)', '(%S+)"), 0)'),
  mutant("another's delivery goes with the event", "include/deliveries", 'call("HLEN", event) == 1', "true"),
  mutant("all that ended are kept", "include/deliveries", "FINISHED_MAX = 1000", "FINISHED_MAX = 2000"),
  mutant(
    "first tries of a failing endpoint take places",
    "include/deliveries",
    "  if is_slow then first,",
    "  if false then first,",
  ),
  mutant(
    "a new message hides how long one waits",
    "include/deliveries",
    'lane, "LT", int(at)',
    "lane, int(at)",
  ),
  mutant("what may send no more is due", "include/deliveries", "= has_room and now or", "= now or"),
  mutant("ports share a queue", "include/deliveries", '"^%a+://[^/?#]+"', '"^%a+://[^/?#:]+"'),
  mutant("an endpoint is always first", "include/deliveries", "int(math.max(at, earliest))", "int(at)"),
  mutant(
    "a disabled endpoint is due",
    "include/deliveries",
    'is_enabled and first_score(name_in(tag, "retries"',
    'first_score(name_in(tag, "retries"',
  ),
  mutant(
    "more are under way than may",
    "lease-deliveries",
    "tonumber(per_endpoint) or 1) - call",
    "1 + tonumber(per_endpoint) or 1) - call",
  ),
  mutant("unknown endpoints get all places", "lease-deliveries", "endpoint.is_known and", "true and"),
  mutant("nobody looks behind lost secrets", "lease-deliveries", "if behind > 0 then", "if false then"),
  mutant(
    "the first behind lost secrets is left out",
    "lease-deliveries",
    "looked_at + now % behind",
    "looked_at + 1",
  ),
  mutant("an endpoint that answers stays unknown", "settle-delivery", 'and "1" or "0"', 'and "1" or false'),
  without("a lease hides nothing", "lease-deliveries", '  call("ZADD", queue, lease_end, event_id)\n'),
  without(
    "what is under way does not count",
    "lease-deliveries",
    '  call("ZADD", name_in(tag, "sending", queue_id), lease_end, event_id)\n',
  ),
  without(
    "a lease that ended keeps its place",
    "lease-deliveries",
    '  call("ZREMRANGEBYSCORE", sending, "-inf", int(now))\n',
  ),
  mutant("all leases have one number", "lease-deliveries", "one.leases + 1", "one.leases + 0"),
  mutant("an old secret signs for ever", "lease-deliveries", "tonumber(signs[6]) > now and", "true and"),
  mutant(
    "a rotation revives a secret",
    "webhook",
    "if signing[2] and tonumber(signing[2]) > now",
    "if signing[2]",
  ),
  mutant("the old secret does not sign", "lease-deliveries", "tonumber(signs[6]) > now and", "false and"),
  mutant("a result of an earlier lease counts", "settle-delivery", " or int(one.leases) ~= lease or", " or"),
  mutant("a result counts twice", "settle-delivery", " or one.at ~= due_at then", " then"),
  mutant("an earlier address ends it", "settle-delivery", 'and result == "gone" then', "and false then"),
  mutant(
    "an earlier address's failures count",
    "settle-delivery",
    "elseif record[1] and not is_moved then",
    "elseif record[1] then",
  ),
  mutant("a new address inherits failures", "webhook", "or after.url then\n  after.", "then\n  after."),
  mutant("what has ended ends again", "settle-delivery", 'or one.state ~= "waiting" or int', "or int"),
  without("a place stays taken", "settle-delivery", 'call("ZREM", sending, event_id)\n'),
  mutant(
    "a retry comes at once",
    "settle-delivery",
    "one.at = int(now + tonumber(retry_ms))",
    "one.at = int(now)",
  ),
  mutant(
    "tries are not counted",
    "settle-delivery",
    '"retried" then\n  one.tries = one.tries + 1',
    '"retried" then\n  one.tries = one.tries',
  ),
  mutant(
    "a wish during a send is lost",
    "settle-delivery",
    'is_again = one.again == "1"',
    "is_again = false",
  ),
  mutant(
    "410 revives a deleted endpoint",
    "settle-delivery",
    'if record[2] == "enabled" and (result',
    "if (result",
  ),
  without(
    "what is sent again gives way",
    "queue-delivery",
    '  call("ZREM", name_in(tag, "finished-deliveries", endpoint_id), event_id)\n',
  ),
  without(
    "a wish during a retry waits twice",
    "settle-delivery",
    '  call("ZREM", name_in(tag, "retries", queue_id), event_id)\n',
  ),
  mutant(
    "410 is a failure as any other",
    "settle-delivery",
    '(result == "gone" or has_failed_long)',
    "has_failed_long",
  ),
  mutant(
    "failures of days do not disable",
    "settle-delivery",
    '(result == "gone" or has_failed_long)',
    'result == "gone"',
  ),
  mutant("a few failures disable", "settle-delivery", "failures >= tonumber(failures_min) and", ""),
  mutant(
    "failures of an hour disable",
    "settle-delivery",
    " and now - tonumber(failing_since) >= tonumber(disable_ms)",
    "",
  ),
  mutant(
    "a success does not end a row of failures",
    "settle-delivery",
    'if record[4] then call("HDEL"',
    'if false then call("HDEL"',
  ),
  mutant("a slow endpoint takes places", "settle-delivery", "or tonumber(took_ms) > tonumber(slow_ms)", ""),
  mutant("what more is due is not said", "settle-delivery", "due <= now and 1 or 0", "due < 0 and 1 or 0"),
  without(
    "nobody is told who disabled it",
    "include/endpoints",
    '  write_audit(endpoint, now, actor, "webhook.disable", account_id, endpoint_id, { status = "enabled" },\n    { status = "disabled", disabled_reason = reason })\n',
  ),
  without("an endpoint is not noted in the account's money", "include/endpoints", "  mark_extras(account)\n"),
  mutant(
    "an account without endpoints keeps its mark",
    "include/endpoints",
    '"webhooks")\n  end\n  mark_extras(account)\n',
    '"webhooks")\n    return\n  end\n  mark_extras(account)\n',
  ),
  mutant(
    "a disabled endpoint gets events",
    "include/endpoints",
    'if record[1] == "enabled" then',
    "if true then",
  ),
  mutant("a closed account registers", "webhook", 'if owner[2] == "closed" then', "if false then"),
  mutant("one more endpoint than may be", "webhook", ") >= tonumber(most_text)", ") > tonumber(most_text)"),
  mutant("another account changes it", "webhook", "if record[1] ~= account_id or", "if not record[1] or"),
  mutant("a stale change counts", "webhook", "if not is_seen(revisions, record[3]) then", "if false then"),
  without("a deleted endpoint is listed", "webhook", '  call("ZREM", webhooks, endpoint_id)\n'),
  mutant(
    "an enabled endpoint stays idle",
    "webhook",
    "if after.status then schedule_endpoint",
    "if false then schedule_endpoint",
  ),
  mutant(
    "another account sends again",
    "queue-delivery",
    "if record[1] ~= account_id or",
    "if not record[1] or",
  ),
  mutant(
    "a disabled endpoint is tested",
    "queue-delivery",
    'if record[2] ~= "enabled" then',
    "if false then",
  ),
  mutant(
    "what is sent now is queued again",
    "queue-delivery",
    "local is_sending = lease_end and",
    "local is_sending = false and",
  ),
  mutant(
    "the schedule goes on",
    "queue-delivery",
    'one.state, one.tries, one.at = "waiting", 0,',
    'one.state, one.tries, one.at = "waiting", one.tries,',
  ),
  mutant("what gets too old is not said", "clean-deliveries", "drop_delivery(", "tostring("),
  mutant(
    "what has ended is dropped",
    "clean-deliveries",
    "if remove_delivery(tag, endpoint_id, event_id) and",
    "remove_delivery(tag, endpoint_id, event_id) if",
  ),
  mutant("deliveries are kept for ever", "clean-deliveries", "or int(now - tonumber(keep_ms))", 'or "-inf"'),
  mutant(
    "deliveries are forgotten early",
    "clean-deliveries",
    "or int(now - tonumber(keep_ms))",
    "or int(now)",
  ),
  mutant("a deleted endpoint keeps what waits", "clean-deliveries", 'status == "deleted" and "+inf" or', ""),
  mutant(
    "a deleted endpoint leaves its record",
    "clean-deliveries",
    'if not status or status == "deleted" then',
    "if false then",
  ),
  mutant("a late completion is told to nobody", "reclaim", "add_event(account, now", "tostring(account, now"),
  mutant("a late completion is not told to its address", "reclaim", ", record.callback)", ")"),
  mutant("a late completion is not told to endpoints", "reclaim", 'call("HGET", account, "webhooks")', "nil"),
  mutant("no event is queued", "observe", "add_event(account, now", "tostring(account, now"),
  mutant(
    "what cannot be signed is taken",
    "lease-deliveries",
    "if endpoint.is_enabled and not is_openable(endpoint.secret) then",
    "if false then",
  ),
  mutant(
    "only one key opens",
    "lease-deliveries",
    "#prefix) == prefix then return true end",
    "#prefix) == prefix end return false",
  ),
  mutant(
    "all origins share a queue",
    "include/deliveries",
    'call("ZADD", queues, int(now), id)\n  return id',
    'call("ZADD", queues, int(now), id)\n  return owner',
  ),
  mutant("one more origin than may be", "include/deliveries", ") >= ORIGINS_MAX", ") > ORIGINS_MAX"),
  mutant("an origin that waits gives way", "include/deliveries", "count_waiting(tag, other) == 0", "true"),
  without(
    "an origin that gave way leaves its record",
    "include/deliveries",
    '  call("DEL", name_in(tag, "webhook", queue_id))\n',
  ),
  without(
    "a forgotten queue stays in use",
    "queue-delivery",
    "    queue_id = queue_of_address(tag, account_id, url, now)\n",
  ),
  mutant(
    "a closed account is told again",
    "queue-delivery",
    'if call("HGET", name_in(tag, "account", account_id), "status") == "closed" then',
    'if kind ~= "" and call("HGET", name_in(tag, "account", account_id), "status") == "closed" then',
  ),
  mutant("queues are kept for ever", "clean-deliveries", "queues and call", "nil and call"),
  mutant(
    "an endpoint of a closed account changes",
    "webhook",
    'call("HGET", account, "status") == "closed" then',
    "false then",
  ),
  mutant(
    "a closed account's secrets stay with the old key",
    "webhook",
    ' and action ~= "webhook.reseal" and',
    " and",
  ),
  mutant(
    "a closed account's endpoint is tested",
    "queue-delivery",
    '"status") == "closed" then',
    '"status") == "none" then',
  ),
];

/** Of what was sold; test/lua/sales.test.ts finds them. */
export const SALES_MUTANTS: readonly Mutant[] = [
  mutant(
    "an adjustment is sold",
    "rollup",
    'if kind ~= "adjustment" then note_sale',
    "if true then note_sale",
  ),
  mutant("all currencies are one", "include/sales", 'details.currency or "-"', '"-"'),
  mutant("all packages are one", "include/sales", 'details.package or ""', '""'),
  mutant("a grant counts twice", "include/sales", '"grants " .. group, 1)', '"grants " .. group, 2)'),
  mutant(
    "credits are grants",
    "include/sales",
    '"credits " .. group, entry.amount)',
    '"credits " .. group, 1)',
  ),
  mutant("digits are lost", "include/sales", "4 - #part", "2 - #part"),
  mutant("room without end", "include/sales", 'call("HLEN", name) >= SOLD_FIELDS_MAX', "false"),
  mutant(
    "what is in it has no room",
    "include/sales",
    'call("HEXISTS", name, "grants " .. group) == 0 and ',
    "",
  ),
  mutant("a sum without end", "include/sales", "<= SUM_DIGITS_MAX", "<= 99"),
  mutant("deep metadata stops it", "include/sales", "pcall(cjson.decode, ", "true, cjson.decode("),
  without(
    "kept for ever",
    "include/sales",
    '  call("PEXPIREAT", name, int(month_at + 31 * DAY_MS + tonumber(kept_ms)))\n',
  ),
];
