import type { Control } from "./controls.ts";
import { disks } from "./disks.ts";
import { lateBinds } from "./late-binds.ts";
import { overload } from "./overload.ts";
import { stores } from "./stores.ts";
import { type TaskEndsSize, taskEnds } from "./task-ends.ts";

const lateOnly =
  (size: Partial<Parameters<typeof lateBinds.run>[1]>): Control["run"] =>
  (options) =>
    lateBinds.run(options, {
      rounds: 0,
      requestsEach: 0,
      requestsOld: 0,
      requestsPutBack: 0,
      requestsExpired: 0,
      ...size,
    });
const lateAfterHours = lateOnly({ rounds: 1, requestsEach: 24 });
const ends =
  (part: NonNullable<TaskEndsSize["only"]>[number], tasksEach = 3): Control["run"] =>
  (options) =>
    taskEnds.run(options, { maxAgeMs: 6000, tasksEach, only: [part] });

const CHARGED_THOUGH_FORGOTTEN = {
  file: "lua/generations/bind.lua",
  from: "if collected_until and tonumber(admission)",
  to: "if false and tonumber(admission)",
};

/** Mistakes that show only where things come late, twice, or from another place. */
export const RARE_INTERLEAVINGS: readonly Control[] = [
  {
    name: "a late BIND is charged though its Idempotency-Key is another request's by now",
    patches: [
      {
        file: "lua/generations/bind.lua",
        from: "local is_others = first and first[1] and first[1] ~= request_id",
        to: "local is_others = false",
      },
    ],
    run: lateAfterHours,
    caughtBy: "one Idempotency-Key, one charge",
  },
  {
    name: "a late BIND takes no place in its day again",
    patches: [
      {
        file: "lua/generations/bind.lua",
        from: "if recorded_at and change_counts(admitted_key, recorded_at, 1) then",
        to: "if false then",
      },
    ],
    run: lateAfterHours,
    caughtBy: "slots and days never above the limit",
  },
  {
    name: "what waits in the outbox is judged by the gateway's wall clock",
    patches: [
      {
        file: "src/durability/deferred-settlements.ts",
        from: "nowMs: primary.nowMs,",
        to: "nowMs: Date.now,",
      },
      // It hides the mistake: what is sent too late is refused.
      CHARGED_THOUGH_FORGOTTEN,
    ],
    run: lateOnly({ requestsOld: 12 }),
    caughtBy: "charged exactly once, nothing lost",
  },
  {
    name: "a BIND of a request that was collected while the clock was ahead is charged again",
    patches: [CHARGED_THOUGH_FORGOTTEN],
    run: lateOnly({ requestsPutBack: 12 }),
    caughtBy: "charged exactly once, nothing lost",
  },
  {
    name: "a late BIND is charged though the record of its Idempotency-Key has expired early",
    patches: [
      {
        file: "lua/generations/bind.lua",
        from: 'local is_lost = state ~= "held" and earlier.first_void_id and earlier.first_void_id ~= (first and first[3])',
        to: "local is_lost = false",
      },
    ],
    run: lateOnly({ requestsExpired: 12 }),
    caughtBy: "one Idempotency-Key, one charge",
  },
  {
    name: "settlements are sent to whichever store answers",
    patches: [
      {
        file: "src/durability/outbox/outbox-queues.ts",
        from: '[...new Set(["", storeId, UNMETERED, storeId + UNMETERED])].flatMap((name) => queues.get(name) ?? []);',
        to: 'storeId === "" ? [] : [...queues.values()];',
      },
    ],
    run: (options) => stores.run(options, { returns: 1, requestsEach: 24, requestsAfterCopy: 0 }),
    caughtBy: "charged exactly once, nothing lost",
  },
  {
    name: "an empty store is a new one",
    patches: [
      {
        file: "src/durability/losses/last-confirmed.ts",
        from: "known.size === 0 || (id",
        to: "known.size >= 0 || (id",
      },
    ],
    run: (options) => stores.run(options, { returns: 1, requestsEach: 24, requestsAfterCopy: 0 }),
    caughtBy: "stores are kept apart",
    violation: /an empty store does not know its key/,
  },
  {
    name: "a Redis that keeps nothing is used",
    patches: [
      {
        file: "src/redis/store-facts.ts",
        from: '(await persistenceOf(redis)) === "none"',
        to: '(await persistenceOf(redis)) !== "none"',
      },
    ],
    run: (options) => stores.run(options, { returns: 0, requestsEach: 0, requestsAfterCopy: 0 }),
    caughtBy: "faults struck as planned",
    violation: /without persistence is refused/,
  },
  {
    name: "the journal of a living gateway is taken, which does not notice",
    patches: [
      {
        file: "src/durability/outbox/journal-lock.ts",
        from: 'if (code !== "ENOENT") return code === "ECONNREFUSED";',
        to: "if (code !== stem) return true;",
      },
      {
        file: "src/durability/outbox/journal-file.ts",
        from: "if (lines.length === 0 || !(await this.#own.leaveIfGone())) break;",
        to: "break;",
      },
    ],
    run: (options) => disks.run(options, { requestsEach: 0, lines: 0, requestsShared: 24 }),
    caughtBy: "charged exactly once, nothing lost",
  },
  {
    name: "an older store is served",
    patches: [
      {
        file: "src/durability/losses/loss-detector.ts",
        from: "if (missing.length + lostCharges.length === 0 && !isUnaccepted && !reported) {",
        to: "if (accepted >= 0) {",
      },
    ],
    run: (options) => stores.run(options, { returns: 0, requestsEach: 0, requestsAfterCopy: 24 }),
    caughtBy: "stores are kept apart",
  },
  {
    name: "a task ends at its maximum age whatever came of the last question",
    patches: [
      {
        file: "src/settlement/task-verdict.ts",
        from: 'return answer.outcome === "refused" && answer.aboutTask && isOld ? ended(task, "expired") : undefined;',
        to: 'return isOld ? ended(task, "expired", true) : undefined;',
      },
    ],
    run: ends("last questions"),
    caughtBy: "tasks end on evidence",
  },
  {
    name: "a 404 without the API's envelope is believed",
    patches: [
      {
        file: "src/upstream/adapters/envelope.ts",
        from: "if (code === 404 && (status === 404 || isSuccess)) return",
        to: "if (code === 404 || status === 404) return",
      },
    ],
    run: ends("first questions"),
    caughtBy: "tasks end on evidence",
  },
  {
    name: "tasks are asked for at the present address, wherever they were made",
    patches: [
      { file: "src/upstream/task-route.ts", from: "if (!tag) return", to: "if (tag || !tag) return" },
    ],
    run: ends("another address"),
    caughtBy: "tasks end on evidence",
  },
  {
    name: "a poll's answer without a task id is believed",
    patches: [
      {
        file: "src/upstream/adapters/envelope.ts",
        from: 'if (data.task_id === undefined) return { outcome: "failed", why: "the answer has no task_id" };',
        to: "",
      },
    ],
    run: ends("first questions"),
    caughtBy: "failed tasks refunded exactly once",
  },
  {
    name: "the maximum age is that of the gateway that asks",
    patches: [
      {
        file: "src/scripts/tasks.ts",
        from: 'maxAgeMs: maxAgeMs === "" ? undefined : Number(maxAgeMs),',
        to: "maxAgeMs: undefined,",
      },
    ],
    run: ends("another maximum age"),
    caughtBy: "tasks end on evidence",
  },
  {
    name: "the answer of an ended task is replaced though its id is disputed",
    patches: [
      {
        file: "lua/generations/observe.lua",
        from: "if kept.status == status and not kept.is_disputed then keep() end",
        to: "if kept.status == status then keep() end",
      },
    ],
    run: ends("ids given twice"),
    caughtBy: "nobody is shown another's video",
  },
  {
    name: "what is said of a running task is believed though its id is disputed",
    patches: [
      {
        file: "lua/generations/observe.lua",
        from: "if kept.is_disputed and not is_ours then",
        to: "if false then",
      },
    ],
    run: ends("ids given twice"),
    caughtBy: "nobody is shown another's video",
  },
  {
    name: "generations are sent without waiting at the gate",
    patches: [
      {
        file: "src/domain/fair-gate.ts",
        from: "if (this.#closed || !this.#hasRoom(owner)) return false;",
        to: "if (this.#closed) return false;",
      },
    ],
    run: (options) => overload.run(options, { secondsEach: 8 }),
    caughtBy: "faults struck as planned",
    violation: /nothing was refused|was answered 50[24]|% of the capacity was answered/,
  },
  {
    name: "log lines are dropped and not counted",
    patches: [
      {
        file: "src/telemetry/log.ts",
        from: "if (this.#waitingBytes + chunk.length > WAITING_BYTES_MAX) dropped.lines += linesIn(chunk);",
        to: "if (this.#waitingBytes + chunk.length > WAITING_BYTES_MAX) return;",
      },
    ],
    run: (options) => disks.run(options, { requestsEach: 3, lines: 5000 }),
    caughtBy: "faults struck as planned",
    violation: /dropped log lines are counted/,
  },
];
