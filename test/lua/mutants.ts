import { cp, mkdtemp, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { LUA_FOLDER } from "./headers.ts";

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
    "stamp_at(window, -middle) <= since",
    "stamp_at(window, -middle) < since",
  ),
  mutant("an oldest entry of exactly 60 s counts", "include/window", "oldest > since", "oldest >= since"),
  mutant("a key's clock runs backwards", "include/key", "math.max(now, tonumber(f[8] or 0))", "now"),
  mutant("a revoked key is good", "include/key", "usable = not f[7] and", "usable ="),
  mutant(
    "a key is good in the ms it expires",
    "include/key",
    "clock < tonumber(f[6])",
    "clock <= tonumber(f[6])",
  ),
  mutant("own limits do not count", "include/key", "f[3] or rate,", "rate,"),
  mutant("an unknown tier has no limits of its own", "include/key", "at or 1)", "at or 20)"),
  mutant("yesterday's count goes on", "include/key", "tonumber(f[9] or -1) == day and", "f[10] and"),
  mutant(
    "remaining below zero",
    "include/reply",
    "math.max(0, key.rate_limit - live)",
    "key.rate_limit - live",
  ),
  mutant(
    "reset by the newest entry",
    "include/window",
    "local oldest = stamp_at(window, -1)",
    "local oldest = stamp_at(window, 0)",
  ),
  mutant(
    "reset by an entry that has left",
    "include/window",
    "stamp_at(window, -gone - 1)",
    "stamp_at(window, -gone)",
  ),
  mutant(
    "reset by one entry too new",
    "include/window",
    "stamp_at(window, -gone - 1)",
    "stamp_at(window, -gone - 2)",
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
  mutant("the ledger without its request", "include/ledger", "unpack(entry))", "unpack({}))"),
  mutant("an entry names none before it", "include/ledger", '"previous", money[4] or ""', '"previous", ""'),
  without("the account's last entry stays", "include/ledger", ', "last_entry", id'),
  mutant("what is held is forgotten", "include/ledger", "int(tonumber(money[2] or 0) + held)", "int(held)"),
  mutant("the total used is forgotten", "include/ledger", "int(tonumber(money[3] or 0) + used)", "int(used)"),
  mutant("one recent transaction less", "credits", "#entries < most", "#entries < most - 1"),
  mutant("one recent transaction more", "credits", "#entries < most", "#entries <= most"),
  mutant("only the last transaction", "credits", "last = entry[2][at + 1]", "last = nil"),
  // batch
  mutant(
    "an item's ARGV begin one late",
    "batch",
    "  local ok, answer",
    "  table.remove(args, 3)\n  local ok, answer",
  ),
  mutant(
    "an item's ARGV begin one early",
    "batch",
    "  local ok, answer",
    "  table.insert(args, 3, '')\n  local ok, answer",
  ),
  mutant(
    "an item loses its last ARGV",
    "batch",
    "  local ok, answer",
    "  table.remove(args)\n  local ok, answer",
  ),
  mutant(
    "an item loses its last name",
    "batch",
    "  local ok, answer",
    "  table.remove(keys)\n  local ok, answer",
  ),
  mutant(
    "replies come in the wrong order",
    "batch",
    "replies[#replies + 1] = answer",
    "table.insert(replies, 1, answer)",
  ),
  mutant(
    "every item gets the names of the first",
    "batch",
    "  local ok, answer",
    "  KEYS.first = KEYS.first or keys\n  keys = KEYS.first\n  local ok, answer",
  ),
  mutant(
    "an item is run twice",
    "batch",
    "  local ok, answer",
    "  pcall(run, keys, args)\n  local ok, answer",
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
    "return cjson.encode(replies)",
    "for _, one in ipairs(replies) do if one.err then return '[]' end end\nreturn cjson.encode(replies)",
  ),
  mutant(
    "an item that failed has no reply",
    "batch",
    "replies[#replies + 1] = answer",
    "if ok then replies[#replies + 1] = answer end",
  ),
  // admit
  mutant("limit plus one", "admit", "if live >= key.rate_limit", "if live > key.rate_limit"),
  mutant(
    "daily limit plus one",
    "admit",
    "key.day_count >= key.daily_limit",
    "key.day_count > key.daily_limit",
  ),
  mutant(
    "a daily refusal says one request too few as used",
    "admit",
    "int(key.daily_limit), int(key.day_count))",
    "int(key.daily_limit), int(key.day_count - 1))",
  ),
  mutant("one slot too many", "admit", ">= key.max_concurrent", "> key.max_concurrent"),
  mutant("the last credit cannot be spent", "admit", "available < price", "available <= price"),
  mutant(
    "held credits are spent again",
    "admit",
    "tonumber(money[1] or 0) - held",
    "tonumber(money[1] or 0)",
  ),
  mutant("not_after is not looked at", "admit", "now > tonumber(ARGV[7])", "false"),
  mutant("stale one ms early", "admit", "now > tonumber(ARGV[7])", "now >= tonumber(ARGV[7])"),
  mutant("a replay is admitted anew", "admit", "if earlier then", 'if earlier == "void" then'),
  without(
    "a revoked key is admitted",
    "admit",
    'if not key.usable then return reply("unknown_key", now) end\n',
  ),
  mutant(
    "a repeat is judged by its key",
    "admit",
    'if not key then return reply("unknown_key", now) end',
    'if not key or not key.usable then return reply("unknown_key", now) end',
  ),
  mutant("the tombstone is overlooked", "admit", 'earlier == "void" and "void" or "admitted"', '"admitted"'),
  mutant("any body answers to an Idempotency-Key", "admit", "first[2] ~= ARGV[9]", "false"),
  mutant("a bound request still in progress", "admit", "if first[3] then", "if false then"),
  mutant(
    "limits before the Idempotency-Key",
    "admit",
    "if KEYS[7] then\n  local first",
    "if KEYS[7] and read_window(window, key.clock) < key.rate_limit then\n  local first",
  ),
  mutant(
    "retry by the oldest entry",
    "admit",
    "stamp_at(window, key.rate_limit - 1)",
    "stamp_at(window, live - 1)",
  ),
  mutant("retry by the key's clock", "admit", "WINDOW_MS - now", "WINDOW_MS - key.clock"),
  mutant("midnight by the key's clock", "admit", "DAY_MS - now", "DAY_MS - key.clock"),
  mutant("the day does not count", "admit", "int(key.day_count + 1)", "int(key.day_count)"),
  mutant("the clock is not kept", "admit", '"clock_ms", clock, ', ""),
  without("no window entry", "admit", 'redis.call("LPUSH", window, clock)\n'),
  mutant("the newest entry is trimmed", "admit", 'LTRIM", window, 0, live)', 'LTRIM", window, 1, live)'),
  mutant("one live entry is trimmed", "admit", 'LTRIM", window, 0, live)', 'LTRIM", window, 0, live - 1)'),
  mutant(
    "an empty window is never trimmed",
    "admit",
    "if live < length then",
    "if live > 0 and live < length then",
  ),
  without("no slot", "admit", 'redis.call("SADD", slots, request_id)\n'),
  mutant("no hold", "admit", "int(held + price)", "int(held)"),
  mutant("other holds are forgotten", "admit", "int(held + price)", "int(price)"),
  mutant("requests are not counted", "admit", "tonumber(money[3] or 0) + 1", "tonumber(money[3] or 0)"),
  mutant("requests are counted anew", "admit", "tonumber(money[3] or 0) + 1", "1"),
  mutant("remaining without the new one", "admit", "key, live + 1, oldest", "key, live, oldest"),
  mutant("active without the new one", "admit", "active + 1, noted)", "active, noted)"),
  mutant("the first of a window resets now", "admit", "oldest or key.clock", "oldest"),
  mutant("the newest resets", "admit", "oldest or key.clock", "key.clock"),
  without("the sweeper never hears of it", "admit", 'redis.call("ZADD", KEYS[6], due_at, request_id)\n'),
  mutant(
    "a limit in shadow mode refuses",
    "admit",
    "if not string.find(key.shadow, letter, 1, true)",
    "if true",
  ),
  mutant("no limit refuses", "admit", "if not string.find(key.shadow, letter, 1, true)", "if false"),
  mutant("shadow mode goes unnoted", "admit", "active + 1, noted)", "active + 1)"),
  mutant("the last shadow alone is noted", "admit", '(noted or "") .. letter', "letter"),
  mutant("the day's shadow is the window's", "admit", 'refuses("d")', 'refuses("r")'),
  without("an Idempotency-Key expires while it is held", "admit", '  redis.call("PERSIST", KEYS[7])\n'),
  mutant(
    "slots before the window",
    "admit",
    "local live, length",
    'if redis.call("SCARD", slots) >= key.max_concurrent then return reply("concurrency_limited", now, key, window, slots) end\nlocal live, length',
  ),
  // bind
  mutant(
    "another's task id is taken",
    "bind",
    "if owner and read_owner(owner) ~= request_id then",
    "if false then",
  ),
  mutant("another's task is written over", "bind", 'text, "NX", "GET")', 'text, "GET")'),
  mutant(
    "a replay is a conflict",
    "bind",
    "if owner and read_owner(owner) ~= request_id then",
    "if owner then",
  ),
  mutant("a second task for one request", "bind", "record[2] and record[2] ~= task_id", "false"),
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
  mutant("the price is not what admission fixed", "bind", "record[3] or ARGV[5]", "ARGV[5]"),
  mutant("late is charged without cover", "bind", "= covered and not is_others", "= not is_others"),
  mutant("late is never charged", "bind", "= covered and not is_others", "= false"),
  mutant(
    "a late one is charged though its Idempotency-Key has expired early",
    "bind",
    " and not is_lost",
    "",
  ),
  mutant("any record of an Idempotency-Key will do", "bind", "record[7] ~= first[3]", "not first[3]"),
  without(
    "an Idempotency-Key for ever",
    "bind",
    '  redis.call("PEXPIRE", KEYS[11], int(math.max(tonumber(ARGV[11]), tonumber(first[2] or 0) - now)))\n',
  ),
  mutant("one Idempotency-Key is charged twice", "bind", "= covered and not is_others", "= covered"),
  without(
    "a late one is not counted in its day",
    "bind",
    '    redis.call("HINCRBY", KEYS[9], "day_count", 1)\n',
  ),
  mutant("a late one is counted in another day", "bind", "tonumber(counted[1]) == day then", "true then"),
  mutant(
    "a charged Idempotency-Key is forgotten before the first can be bound",
    "bind",
    "tonumber(first[2] or 0) - now",
    "0",
  ),
  without("a disputed task id goes unmarked", "bind", "  dispute(task, account_id)\n"),
  mutant("only running tasks are disputed", "include/dispute", " or is_final(task.status) then", " then"),
  mutant(
    "the same account's running task is disputed",
    "include/dispute",
    "task.account_id ~= account_id or",
    "true or",
  ),
  mutant(
    "a disputed task's owner is another",
    "include/owner",
    'string.match(text, "^!?(%S+)")',
    'string.match(text, "^(%S+)")',
  ),
  mutant("held is spent by a late one", "bind", " - tonumber(money[2] or 0) >= price", " >= price"),
  mutant("the hold stays", "bind", 'state == "held" and -price or 0', "0"),
  mutant("a late one releases a hold", "bind", 'state == "held" and -price or 0', "-price"),
  mutant("total used stays", "bind", "or 0, price, ARGV[6]", "or 0, 0, ARGV[6]"),
  without(
    "uncollected is forgotten",
    "bind",
    '  if outcome == "uncollected" then redis.call("HSET", request, "uncollected", "1") end\n',
  ),
  mutant(
    "uncollected is told as charged the next time",
    "bind",
    'record[6] and "uncollected" or "bound"',
    '"bound"',
  ),
  without("a late one without a slot", "bind", '  redis.call("SADD", slots, request_id)\n'),
  without("a late one stays among the ended", "bind", '  redis.call("ZREM", KEYS[7], request_id)\n'),
  without("a tombstone's expiry stays", "bind", '  redis.call("PERSIST", request)\n'),
  without("the bound stays among the holds", "bind", '  redis.call("ZREM", KEYS[8], request_id)\n'),
  without("nobody polls the task", "bind", 'redis.call("ZADD", KEYS[4], due_at, request_id)\n'),
  mutant(
    "the task id is not taken",
    "bind",
    'redis.call("SET", task, text, "NX", "GET")',
    'redis.call("GET", task)',
  ),
  mutant(
    "another's Idempotency-Key is taken",
    "bind",
    "if KEYS[11] and not is_others then",
    "if KEYS[11] then",
  ),
  mutant(
    "what COLLECT has deleted is charged again",
    "bind",
    "collected_until and tonumber(ARGV[16])",
    "false and tonumber(ARGV[16])",
  ),
  mutant(
    "one of the very time of the latest that was deleted is charged again",
    "bind",
    "tonumber(ARGV[16]) <= tonumber(collected_until)",
    "tonumber(ARGV[16]) < tonumber(collected_until)",
  ),
  mutant("a request that is there is taken for deleted", "bind", "if not state and ARGV[16]", "if ARGV[16]"),
  without(
    "a charge without an admission is deleted without a trace",
    "bind",
    '  if ARGV[16] ~= "" then redis.call("HSETNX", request, "due_at", ARGV[16]) end\n',
  ),
  // void
  mutant("a hold ends before its due time", "void", 'reason == "due" and now', 'reason == "never" and now'),
  mutant("due one ms late", "void", "now < tonumber(record[4])", "now <= tonumber(record[4])"),
  mutant("a charged request is taken back", "void", 'if state ~= "held" then', 'if state == "finished" then'),
  mutant("taken back twice", "void", '  return reply("void", now, key, window, slots)\nend\n', "end\n"),
  without(
    "the hold stays in the balance",
    "void",
    'redis.call("HINCRBY", account, "held", int(-tonumber(record[2])))\n',
  ),
  without("the slot stays", "void", 'redis.call("SREM", slots, request_id)\n'),
  mutant(
    "no tombstone",
    "void",
    'if reason == "unsent" then\n    redis.call("HSET"',
    'if false then\n    redis.call("HSET"',
  ),
  without("a tombstone for ever", "void", '    redis.call("PEXPIRE", request, ARGV[5])\n'),
  mutant("another day gets the count", "void", "same_day and ", ""),
  mutant("the day's count stays", "void", "tonumber(counted[2]) > 0 then", "false then"),
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
    'reason == "unsent" and record[5]',
    "false and record[5]",
  ),
  mutant("unsent twice takes two back", "void", ' and record[5] ~= "unsent"', ""),
  mutant(
    "all equal entries leave the window",
    "void",
    '"LREM", window, 1, admitted_at',
    '"LREM", window, 0, admitted_at',
  ),
  without("the Idempotency-Key stays taken", "void", '    redis.call("DEL", KEYS[8])\n'),
  mutant("a hold that ended by itself is as good as refused", "void", 'reason == "due" or reason', "reason"),
  mutant("a hold that was released is as good as refused", "void", ' or reason == "released"', ""),
  mutant("a refused retry forgets the first", "void", "tonumber(first[2] or 0), is_unknown", "0, is_unknown"),
  mutant("a refusal may yet be bound", "void", "is_unknown and tonumber", "tonumber"),
  without(
    "the record of a free Idempotency-Key for ever",
    "void",
    '    redis.call("PEXPIRE", KEYS[8], int(void_until - now))\n',
  ),
  mutant("each void request has a record of its own", "void", "first[3] or request_id", "request_id"),
  without(
    "a record that VOID has left looks like any other",
    "void",
    '      redis.call("HSET", KEYS[8], "first_void_id", first_void_id)\n',
  ),
  without(
    "a request forgets which record VOID has left",
    "void",
    '      redis.call("HSET", request, "first_void_id", first_void_id)\n',
  ),
  // unclear
  mutant("any request's outcome is unknown", "unclear", "first[1] ~= ARGV[2] or first[2]", "first[2]"),
  mutant("a bound request's outcome is unknown", "unclear", " or first[2] then", " then"),
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
  mutant("refunded though it is off", "observe", ' and ARGV[7] == "1"', ""),
  without("uncollected is refunded", "include/refund", "  if request.uncollected then return 0 end\n"),
  mutant("a refund of one credit less", "include/refund", "tonumber(request.price)", "request.price - 1"),
  mutant("completed is refunded", "observe", 'if status == "failed" and ARGV', "if ARGV"),
  mutant("total used stays after a refund", "include/refund", "price, 0, -price,", "price, 0, 0,"),
  without("the slot stays after the end", "observe", 'redis.call("SREM", KEYS[4], request_id)\n'),
  mutant(
    "polled after the end",
    "observe",
    'ZREM", KEYS[5], request_id)\nreturn',
    'ZREM", KEYS[5], "")\nreturn',
  ),
  mutant(
    "gone after one 404 too few",
    "observe",
    "count < tonumber(ARGV[9])",
    "count + 1 < tonumber(ARGV[9])",
  ),
  mutant("gone at once", "observe", " or now - since < tonumber(ARGV[10])", ""),
  mutant("gone one ms late", "observe", "now - since < tonumber", "now - since <= tonumber"),
  without(
    "a good answer does not reset",
    "observe",
    '  redis.call("HDEL", request, "gone_count", "gone_since")\n',
  ),
  without("another's answer is told", "observe", '  kept.status, kept.data = "", ""\n'),
  mutant("expired does not end it", "observe", 'status == "expired" or status', "status"),
  // inspect, credits, recharge, lease, collect
  mutant(
    "another account's task",
    "inspect",
    "if not task or task.account_id ~= ARGV[3] then",
    "if not task then",
  ),
  mutant(
    "fresh at the bound",
    "inspect",
    "now - observed_at < tonumber(ARGV[4])",
    "now - observed_at <= tonumber(ARGV[4])",
  ),
  mutant("fresh from the future", "inspect", " and observed_at <= now", ""),
  mutant("a revoked key inspects", "inspect", "not key or not key.usable", "not key"),
  mutant(
    "the balance with what is held",
    "credits",
    "tonumber(account[1] or 0) - tonumber(account[2] or 0)",
    "tonumber(account[1] or 0)",
  ),
  without("one reference credits twice", "recharge", 'redis.call("HSET", KEYS[3], ARGV[4], ARGV[3])\n'),
  mutant(
    "another amount is a duplicate",
    "recharge",
    'earlier == ARGV[3] and "duplicate" or "mismatch"',
    '"duplicate"',
  ),
  mutant("no bound on the balance", "recharge", "+ amount > 2 ^ 53 - 1", "+ amount > 2 ^ 60"),
  mutant(
    "refunds may leave the exact integers",
    "recharge",
    " + tonumber(money[3] or 0) + amount",
    " + amount",
  ),
  mutant("claimed without a lease", "lease", "int(now + tonumber(ARGV[3]))", "int(now)"),
  mutant("claims what is not due", "lease", '"-inf", int(now)', '"-inf", "+inf"'),
  mutant("claimed for another account", "lease", '"account_id", "key_id"', '"key_id", "account_id"'),
  mutant("claims one too many", "lease", "0, tonumber(ARGV[2])", "0, tonumber(ARGV[2]) + 1"),
  mutant("kept for the collector's retention", "collect", "record[4] or ARGV[3]", "ARGV[3]"),
  mutant("collected one ms late", "collect", "kept_until > now", "kept_until >= now"),
  mutant(
    "an ended request is found at once",
    "include/retention",
    "now + tonumber(retention_ms or 0)",
    "now",
  ),
  mutant("the retention is not fixed", "admit", ', "retention_ms", ARGV[11])', ")"),
  mutant(
    "a forgotten request gets no retention",
    "bind",
    'if ARGV[15] ~= "" and not record[4] then',
    "if false then",
  ),
  mutant("another's maximum age is answered", "inspect", 'fixed[1] or ""', '"1"'),
  mutant(
    "the maximum age is not fixed",
    "bind",
    "local max_age_ms, upstream = ARGV[13]",
    'local max_age_ms, upstream = ""',
  ),
  mutant("the upstream is not kept", "bind", "ARGV[13], ARGV[14]", 'ARGV[13], ""'),
  without("collected, but still listed", "collect", 'redis.call("ZREM", KEYS[2], ARGV[2])\n'),
  without(
    "a record is deleted without a trace",
    "collect",
    '    redis.call("HSET", account, "collected_until", due_at)\n',
  ),
  mutant(
    "what is deleted last counts, not what was admitted last",
    "collect",
    "if due_at and tonumber(due_at) > tonumber(collected_until or 0) then",
    "if due_at then",
  ),
  without("the task stays", "collect", 'redis.call("DEL", KEYS[3]) '),
  without("the claim stays", "collect", ' redis.call("DEL", KEYS[4])'),
  mutant("no claim is taken", "bind", 'KEYS[10] ~= "" and', "false and"),
  mutant("another's claim is taken for its own", "include/claim", "read_owner(found) == request_id", "true"),
  without("a task id of another partition goes unmarked", "bind", "  dispute(others, account_id)\n"),
  without("a refused task id is bound in its partition", "bind", '  redis.call("DEL", task)\n'),
];

/** Mistakes in what the ledger check reads, which the model does not play; the check itself must find a sound ledger wrong. */
export const SNAPSHOT_MUTANTS: readonly Mutant[] = [
  mutant("counts the account's fields", "snapshot", '"HLEN", KEYS[2]', '"HLEN", KEYS[1]'),
  mutant("counts one reference too few", "snapshot", '"HLEN", KEYS[2])', '"HLEN", KEYS[2]) - 1'),
];

/** Mistakes that only a store with an archive shows. */
export const ARCHIVE_MUTANTS: readonly Mutant[] = [
  mutant("a new key is not noted", "issue", 'note_changed(key, "key " .. ARGV[2])', ""),
  mutant("a new account is not noted", "issue", 'note_changed(key, "account " .. account_id)', ""),
  mutant(
    "a changed key is not noted",
    "change",
    'note_changed(KEYS[1], "key " .. string.match(KEYS[1], ":key:(.*)$"))',
    "",
  ),
  mutant(
    "a later change is not counted",
    "include/changed",
    '"HINCRBY", tag .. ":changed", what, 1',
    '"HSET", tag .. ":changed", what, 1',
  ),
  mutant("nothing is noted", "include/changed", "== 1 then", "== 2 then"),
  mutant(
    "a change after the read is lost",
    "archived",
    'if redis.call("HGET", changed, items[at]) == items[at + 1] then',
    "do",
  ),
  mutant("changes stay noted", "archived", 'redis.call("HDEL", changed, items[at])', ""),
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
    'if redis.call("HGET", request, "state") == state then',
    "do",
  ),
  mutant("another archive's generation is marked", "archived", "~= generation then", '== "" then'),
  mutant("the newest entry is not noted", "archived", '"newest", ARGV[4]', '"newest", "0-0"'),
  mutant("what was looked at is not noted", "archived", '"looked_until", ARGV[5]', '"looked_until", 0'),
  mutant(
    "a request is collected before the archive has it",
    "collect",
    'if generation and record[7] ~= generation .. " " .. record[1] then',
    "if false then",
  ),
  mutant(
    "a request of another generation is collected",
    "collect",
    'record[7] ~= generation .. " " .. record[1]',
    "not record[7]",
  ),
  mutant(
    "a request is collected in another state than was copied",
    "archived",
    '"archived", generation .. " " .. state',
    '"archived", generation .. " finished"',
  ),
];

/** Mistakes that only a store shows that moves from layout 1 to layout 2. */
export const MOVE_MUTANTS: readonly Mutant[] = [
  mutant("its own claim is taken for another's", "include/claim", "or read_owner(found) == request_id", ""),
  mutant("what another request owns by now is moved", "move", "earlier.request_id ~= request_id", "false"),
  without("the record of layout 1 stays", "move", 'redis.call("DEL", KEYS[1])\n'),
  mutant("what was collected is moved", "move", 'redis.call("EXISTS", KEYS[4]) == 0', "false"),
  without("of two tasks one is not marked", "move", "if others then dispute(others, earlier.account_id) end"),
  mutant(
    "another's record is written over",
    "move",
    "if not kept or kept.request_id == request_id then",
    "do",
  ),
  mutant("the end of a task is lost", "move", "kept and is_final(kept.status) and kept.text or", ""),
  mutant("what a later poll said is lost", "move", "is_final(kept.status) and", ""),
  mutant("a mark of layout 1 is lost", "move", " or earlier.is_disputed", ""),
  mutant("a mark of layout 2 is lost", "move", " or kept and kept.is_disputed", ""),
  mutant("of two tasks the other is not marked", "move", "= others or earlier", "= earlier"),
];

/** Mistakes that only a Redis Cluster shows, where a task id may be disputed before its owner's BIND. */
export const CLUSTER_MUTANTS: readonly Mutant[] = [
  without("a disputed task id goes unmarked", "dispute", "  dispute(task, account_id)\n"),
  mutant("another request's task is marked", "dispute", "read_owner(text) ~= owner then", "false then"),
  mutant("a mark before BIND is not found", "include/dispute", '"^!%S+ (%S+) %? 0$"', '"^(never)$"'),
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
    'redis.call("SREM", slots, request_id)\n',
    'redis.call("HINCRBY", account, "held", int(-tonumber(record[2])))\n' +
      'redis.call("SREM", slots, request_id)\n' +
      'redis.call("HINCRBY", account, "held", int(tonumber(record[2])))\n',
  ),
  mutant(
    "the sweeper forgets the hold before it is void",
    "void",
    'redis.call("SREM", slots, request_id)\n',
    'redis.call("ZREM", KEYS[6], request_id)\nredis.call("SREM", slots, request_id)\n',
  ),
  mutant(
    "the request is finished before the refund",
    "observe",
    'redis.call("SREM", KEYS[4], request_id)\n',
    'redis.call("HSET", request, "state", "finished")\nredis.call("SREM", KEYS[4], request_id)\n',
  ),
  mutant(
    "a 404 is counted before the next poll is due",
    "observe",
    "  local since = tonumber(record[7] or now)\n",
    '  local since = tonumber(record[7] or now)\n  redis.call("HSET", request, "gone_count", int(count))\n',
  ),
];

/** Mistakes that only a ledger shows that is trimmed. */
export const TRIM_MUTANTS: readonly Mutant[] = [
  mutant("of another entry the account does not matter", "trim", "found.account_id ~= ARGV[3] or ", ""),
  mutant("of another entry the balance does not matter", "trim", "found.balance_after ~= ARGV[4] or", ""),
  mutant(
    "of another entry the request does not matter",
    "trim",
    '(found.request_id or "") ~= ARGV[5]',
    "false",
  ),
  mutant(
    "of another entry the reference does not matter",
    "trim",
    '(found.reference or "") ~= ARGV[6]',
    "false",
  ),
  mutant("the newest archived entry leaves, too", "trim", '"(" .. ARGV[2], "COUNT"', 'ARGV[2], "COUNT"'),
  mutant("what is not archived leaves", "trim", '"-", "(" .. ARGV[2]', '"-", "+"'),
  mutant("one entry too young leaves", "trim", "tonumber(entry.at) > now - tonumber(ARGV[7])", "false"),
  mutant(
    "an entry of exactly that age stays",
    "trim",
    "> now - tonumber(ARGV[7])",
    ">= now - tonumber(ARGV[7])",
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
  without("the checkpoint is not written", "trim", "write_checkpoint(ARGV[10] .. account_id, checkpoint)"),
  mutant(
    "a checkpoint begins anew with each slice",
    "trim",
    "or read_checkpoint(ARGV[10] .. account_id)",
    'or read_checkpoint(ARGV[10] .. "")',
  ),
  without(
    "nothing says where the ledger begins",
    "trim",
    'redis.call("HSET", KEYS[2], "last_entry", cut, "at", cut_at)',
  ),
  mutant(
    "the cut is said to be younger",
    "trim",
    "cut, cut_at = removed + 1, id, entry.at",
    "cut, cut_at = removed + 1, id, int(now)",
  ),
  without("what has left is not counted", "trim", 'redis.call("HINCRBY", KEYS[2], "entries", removed)'),
  without(
    "a request does not say that its charge has left",
    "trim",
    'redis.call("HSET", request, "trimmed_charge", id)',
  ),
  without("a grant is not noted", "trim", 'redis.call("ZADD", KEYS[3], at, grant)'),
  mutant(
    "a grant is noted as older",
    "trim",
    'redis.call("ZADD", KEYS[3], at, grant)',
    'redis.call("ZADD", KEYS[3], at - 1000, grant)',
  ),
  mutant(
    "a grant is noted as younger",
    "trim",
    'redis.call("ZADD", KEYS[3], at, grant)',
    'redis.call("ZADD", KEYS[3], int(now), grant)',
  ),
  mutant(
    "a reference is forgotten early",
    "trim",
    "now - tonumber(ARGV[9])",
    "now - tonumber(ARGV[9]) + 1000",
  ),
  mutant("all references are forgotten", "trim", "int(now - tonumber(ARGV[9]))", '"+inf"'),
  without("a forgotten reference stays", "trim", 'redis.call("HDEL", ARGV[12] .. account_id, reference)'),
  without("a forgotten grant stays noted", "trim", 'redis.call("ZREM", KEYS[3], grant)'),
  mutant("a forgotten reference is not counted", "trim", "checkpoint.forgotten + 1", "checkpoint.forgotten"),
  mutant(
    "its credits are not counted",
    "trim",
    "checkpoint.forgotten_credits + tonumber(amount)",
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
  mutant("a refund counts as a grant", "include/checkpoint", 'entry.reason == "refund"', "false"),
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
  mutant("the tail is not cut", "include/checkpoint", "checkpoint.lines[TAIL_LINES_MAX + 1] = nil", ""),
  mutant(
    "the tail is forgotten with each slice",
    "include/checkpoint",
    'string.gmatch(tail, "[^\\n]+")',
    'string.gmatch("", "x")',
  ),
  mutant(
    "a charge's endpoint is lost",
    "include/checkpoint",
    'entry.type == "consume" and entry.endpoint or',
    "",
  ),
  mutant(
    "a refund's task is lost",
    "include/checkpoint",
    'entry.reason .. " " .. entry.task_id',
    "entry.reason",
  ),
  mutant("credits stop at the cut", "credits", 'redis.call("GET", checkpoint) or nil', "nil"),
  mutant(
    "a forgotten reference credits again",
    "recharge",
    "if forgotten > tonumber(ARGV[5]) then",
    "if false then",
  ),
  mutant("what was looked up does not count", "recharge", "forgotten > tonumber(ARGV[5])", "forgotten > 0"),
  mutant(
    "what was forgotten since the look-up does not count",
    "recharge",
    "forgotten > tonumber(ARGV[5])",
    'ARGV[5] == "0" and forgotten > 0',
  ),
  mutant(
    "forgotten credits are taken for references",
    "include/forgotten",
    " forgotten (%d+)",
    " forgotten_credits (%d+)",
  ),
  mutant(
    "the entry at the cut counts as there",
    "include/cut",
    "> tonumber(other_sequence)",
    ">= tonumber(other_sequence)",
  ),
  mutant(
    "no account goes on from its checkpoint",
    "include/cut",
    'if previous ~= "" and not is_later(previous, cut) then',
    "if false then",
  ),
  mutant("ENTRIES reads no cut", "entries", 'redis.call("HGET", KEYS[2], "last_entry") or ""', '""'),
  mutant("SNAPSHOT reads no checkpoint", "snapshot", 'redis.call("GET", KEYS[6]) or ""', '""'),
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
    "tally",
    "refused",
  ].map((file) => without(`${file} does not look for the mark`, file, "--@unless_frozen KEYS[1]\n")),
  without("observe does not look for the mark", "observe", "--@unless_frozen KEYS[2]\n"),
];

/** Mistakes in the count of keys by tier, which the model does not know. */
export const TIER_MUTANTS: readonly Mutant[] = [
  without("a new key is not counted", "issue", "count_tier(key, KEYS[7])\n"),
  without("a changed key is not counted anew", "change", "count_tier(KEYS[1], KEYS[2])\n"),
  mutant("a revoked key is counted", "include/tiers", "f[1] and not f[2] and f[1]", "f[1]"),
  mutant("a key is counted only once in its life", "include/tiers", "tier == counted", "counted"),
  mutant("it stays counted under its former tier", "include/tiers", "counted, -1)", "counted, 0)"),
  mutant("a tier without keys stays", "include/tiers", "<= 0 then", "< 0 then"),
  without(
    "where it is counted is not kept",
    "include/tiers",
    '    redis.call("HSET", key, "counted", tier)\n',
  ),
  mutant("a partition counts as gone through too early", "tally", 'if ARGV[3] == "1" then', "if true then"),
];

/** Mistakes in the count of refusals, which the model does not know. */
export const REFUSED_MUTANTS: readonly Mutant[] = [
  mutant("an account may have one field more", "refused", ">= tonumber(ARGV[2])", "> tonumber(ARGV[2])"),
  mutant("a day may have one field more", "refused", ">= tonumber(ARGV[3])", "> tonumber(ARGV[3])"),
  without(
    "fields of an account are not counted",
    "refused",
    '        redis.call("HINCRBY", counts, account_id, 1)\n',
  ),
  mutant("a refusal counts once", "refused", "field, items[at + 4])", "field, 1)"),
  mutant("hours count together", "refused", '" " .. hour .. " " .. key_id', '" 00 " .. key_id'),
  without("it stays for ever", "refused", 'redis.call("PEXPIRE", counts, ARGV[4])\n'),
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
    'if is_search and redis.call("EXISTS", KEYS[2]) == 0',
    "if false",
  ),
  mutant(
    "a gap is taken for the beginning",
    "history",
    'if is_search and redis.call("EXISTS", KEYS[2]) == 0',
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
  mutant(
    "it stops before the time that is wanted",
    "history",
    "id_ms < since - SLACK_MS",
    "id_ms < since + 600000",
  ),
  mutant("a charge is a refund", "include/kind", 'is_consume and "charge" or "refund"', '"refund"'),
  mutant("an adjustment upwards is a purchase", "include/kind", 'entry.reason == "" and', "true and"),
  mutant(
    "a purchase is an adjustment",
    "include/kind",
    "tonumber(entry.amount) >= 0",
    "tonumber(entry.amount) < 0",
  ),
];

/** Copies the scripts to a temporary folder with this one mistake in them. @throws Error unless `find` stands there once */
export async function plant({ what, file, find, put }: Mutant): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "tollgate-mutant-"));
  await cp(LUA_FOLDER, folder, { recursive: true });
  const path = join(folder, `${file}.lua`);
  const text = await readFile(path, "utf8");
  const found = text.split(find).length - 1;
  if (found !== 1 || find === put) throw new Error(`mutant "${what}": ${found} places in ${file}.lua`);
  await writeFile(
    path,
    text.replace(find, () => put),
  );
  return folder;
}
