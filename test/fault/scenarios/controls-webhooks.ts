import type { Patch } from "../tree.ts";
import { callbackSlots } from "./callback-slots.ts";
import { callbacks } from "./callbacks.ts";
import type { Control } from "./controls.ts";
import { runWebhookLoads } from "./webhook-loads.ts";
import type { Strike } from "./webhook-strikes.ts";
import { webhooks } from "./webhooks.ts";

const run =
  (strikesEach = 0, only: readonly Strike[] = [], kinds?: readonly string[]): Control["run"] =>
  (options) =>
    webhooks.run(options, { requests: 150, strikesEach, only, ...(kinds && { kinds }) });

const calledBack =
  (...only: string[]): Control["run"] =>
  (options) =>
    callbacks.run(options, { each: 4, only });

const slotsBack: Control["run"] = (options) => callbackSlots.run(options, { each: 40 });
const SLOTS_BACK = "slots come back within 1000 ms of the callback, without polls";

/** The next poll frees the slot of a task that has ended. */
const SLOT_LEFT_TAKEN: Control["patches"] = [
  {
    file: "lua/generations/observe.lua",
    from: 'call("SREM", slots, request_id)\nif shared',
    to: "if shared",
  },
  {
    file: "lua/generations/observe.lua",
    from: 'if state == "finished" then\n',
    to: 'if state == "finished" then\n  call("SREM", slots, request_id)\n',
  },
];

/** Slots that callbacks ought to free. */
const SLOT_CONTROLS: readonly Control[] = [
  {
    name: "with `relay: all` only those that ask for a callback get an address",
    patches: [
      {
        file: "src/gateway/relay.ts",
        from: 'if (callBackUrl === undefined && config.webhooks.relay !== "all") return undefined;',
        to: "if (callBackUrl === undefined) return undefined;",
      },
    ],
    run: slotsBack,
    caughtBy: "every generation is called back about",
    violation: /was not called back about: no address/,
  },
  {
    name: "a callback about a running task is answered, and the task is left to the sweeps",
    patches: [
      {
        file: "src/settlement/callback-tasks.ts",
        from: "return this.#poll(request);",
        to: 'return "observed";',
      },
    ],
    run: slotsBack,
    caughtBy: SLOTS_BACK,
    violation: /is bound though its callback was answered 200/,
  },
  {
    name: "a callback has its task polled with the next sweep",
    patches: [
      {
        file: "src/settlement/callback-tasks.ts",
        from: "return this.#poll(request);",
        to: "return pause(2000 - (Date.now() % 2000)).then(() => this.#poll(request));",
      },
    ],
    run: slotsBack,
    caughtBy: SLOTS_BACK,
    violation: /had its slot for \d+ ms after/,
  },
  {
    name: "a slot that the callback's poll leaves taken",
    patches: SLOT_LEFT_TAKEN,
    run: slotsBack,
    caughtBy: SLOTS_BACK,
    violation: /its slot was taken a second after/,
  },
];

/** The campaign of failovers seeds it, too. */
export const REFUND_AFTER_TOLD: Patch[] = [
  {
    file: "lua/generations/observe.lua",
    from: 'if status == "failed" and refunds_failed == "1" then\n',
    to: 'if status == "failed" and refunds_failed == "" then\n',
  },
  {
    file: "lua/generations/observe.lua",
    from: 'if state == "finished" then\n',
    to: `if state == "finished" then
  if record.status == "failed" and not record.refunded then
    post_refund(account, ledger, now, account_id, request_id, record, nil)
    call("SET", request, changed_request(record.text, "finished", "refunded", "1"))
  end
`,
  },
];

/** Mistakes in telling customers, and in what the upstream's callbacks do. */
export const WEBHOOK_CONTROLS: readonly Control[] = [
  {
    name: "a result is taken whichever lease it is of",
    patches: [
      {
        file: "lua/webhooks/settle-delivery.lua",
        from: 'if not one or one.state ~= "waiting" or int(one.leases) ~= lease or one.at ~= due_at then',
        to: 'if not one or one.state ~= "waiting" then',
      },
    ],
    run: run(3, ["a sender stands still"]),
    caughtBy: "results of earlier leases are refused",
  },
  {
    name: "a lease that ends before its try",
    patches: [
      {
        file: "src/webhooks/delivery-worker.ts",
        from: "      leaseMs,\n",
        to: "      leaseMs: timeoutMs / 10,\n",
      },
    ],
    run: run(),
    caughtBy: "tries do not overlap, endpoints have their pace",
    violation: /began .* before the one before had ended/,
  },
  {
    name: "an end is told, and its refund is posted by the next poll",
    patches: REFUND_AFTER_TOLD,
    run: run(),
    caughtBy: "slot and refund are booked before it is told",
    violation: /while it was not refunded/,
  },
  {
    name: "an end is told by the poll that sees it, and saved by the next one",
    patches: [
      {
        file: "lua/generations/observe.lua",
        from: "local callback = record.callback\n",
        to: `local callback = record.callback
local is_told = call("EXISTS", string.match(request, "^tg:{p%d+}") .. ":event:evt_" .. request_id .. "_task_" .. status) == 1
`,
      },
      {
        file: "lua/generations/observe.lua",
        from: "note_ended(request, now, request_id, account_id,",
        to: `if not is_told then
  call("ZADD", due, task_score(now + poll_ms), request_id)
  return answer("observed")
end
note_ended(request, now, request_id, account_id,`,
      },
    ],
    run: run(),
    caughtBy: "slot and refund are booked before it is told",
    violation: /while the store had bound/,
  },
  {
    name: "a slot that a told end leaves taken until the next poll",
    patches: SLOT_LEFT_TAKEN,
    run: run(),
    caughtBy: "slot and refund are booked before it is told",
    violation: /while its slot was taken/,
  },
  {
    name: "each try has an id of its own",
    patches: [
      {
        file: "src/webhooks/delivery-message.ts",
        from: "const signed = { id: eventId,",
        to: 'const signed = { id: [eventId, nowMs].join("-"),',
      },
    ],
    run: run(),
    caughtBy: "one id, one body and good signatures over all tries",
    violation: / came under /,
  },
  {
    name: "the body has the time of the try",
    patches: [
      {
        file: "src/webhooks/delivery-message.ts",
        from: "new Date(atMs).toISOString()",
        to: "new Date(atMs + Date.now() % 1000).toISOString()",
      },
    ],
    run: run(),
    caughtBy: "one id, one body and good signatures over all tries",
    violation: /several bodies/,
  },
  {
    name: "a poll after the end changes it",
    patches: [
      {
        file: "lua/generations/observe.lua",
        from: 'if state == "finished" then\n',
        to: 'if state == "finished" and (kept.status == status or not is_final(status)) then\n',
      },
      {
        file: "lua/generations/observe.lua",
        from: 'if state ~= "bound" then',
        to: 'if state ~= "bound" and state ~= "finished" then',
      },
    ],
    run: run(0, [], ["changes_its_mind"]),
    caughtBy: "a task has one end, which stays",
  },
  {
    name: "a delivery is forgotten when it is taken to be sent",
    patches: [
      {
        file: "lua/webhooks/lease-deliveries.lua",
        from: 'call("ZADD", queue, lease_end, event_id)',
        to: 'call("ZREM", queue, event_id)',
      },
    ],
    run: run(2, ["a message is being sent", "LEASE run, its reply withheld"]),
    caughtBy: "each end is told, or listed as failed",
    violation: /was never told/,
  },
  {
    name: "a callback names a task, and nobody asks whether there is one",
    patches: [
      {
        file: "src/settlement/callback-tasks.ts",
        from: 'if (outcome.outcome === "gone") return "unknown_task";',
        to: "",
      },
      {
        file: "src/settlement/callback-tasks.ts",
        from: 'if (outcome.outcome !== "task" && outcome.outcome !== "unknown_status")',
        to: "if (Date.now() === 0)",
      },
    ],
    run: calledBack("for an unknown outcome, with a task that does not exist"),
    caughtBy: "the upstream's own log agrees",
    violation: /though the upstream gave no task/,
  },
  {
    name: "a callback disputes the task of another account that it names",
    patches: [
      {
        file: "src/settlement/callback-tasks.ts",
        from: 'if (await this.#isOfAnother(requestId, taskId)) return "conflict";',
        to: "",
      },
    ],
    run: calledBack("for an unknown outcome, with the task of another account"),
    caughtBy: "tasks end on evidence",
    violation: /was ended for its age, though/,
  },
  {
    name: "a callback is believed that its task has completed",
    patches: [
      {
        file: "src/settlement/callback-tasks.ts",
        from: "const observed = await this.#observe(request, task, outcome);",
        to: `const said = outcome.outcome === "task" ? { ...outcome, status: "completed" as const } : outcome;
    const observed = await this.#observe(request, task, said);`,
      },
    ],
    run: slotsBack,
    caughtBy: "failed tasks refunded exactly once",
    violation: /ended as completed, which the upstream never said/,
  },
  {
    name: "a callback for an unknown outcome is not used",
    patches: [
      {
        file: "src/settlement/callback-tasks.ts",
        from: "const taskId = await named();",
        to: "const taskId = (await named()) && undefined;",
      },
    ],
    run: calledBack("for an unknown outcome"),
    caughtBy: "no video for nothing",
  },
  {
    name: "a task that was too old stays refunded",
    patches: [
      {
        file: "src/settlement/callback-tasks.ts",
        from: 'if (endedBy === "expired")',
        to: "if (Date.now() === 0)",
      },
    ],
    run: calledBack("after the task ended as too old"),
    caughtBy: "no video for nothing",
    violation: /has completed, and is failed/,
  },
  {
    name: "a callback is taken though nobody could be asked about its task",
    patches: [
      {
        file: "src/gateway/callbacks.ts",
        from: 'if (outcome !== "unanswered" && outcome !== "unknown_task") return success("{}");',
        to: 'if (outcome !== "no_task") return success("{}");',
      },
    ],
    run: calledBack("for an unknown outcome, while the upstream does not answer about it"),
    caughtBy: "no video for nothing",
  },
  {
    name: "retries have the places of first tries",
    patches: [
      {
        file: "src/webhooks/delivery-worker.ts",
        from: "return Math.max(0, all - this.#underWay[lane].size - this.#reserved[lane]);",
        to: "return Math.max(0, inFlight + 0 * all - this.#underWay.first.size - this.#underWay.retry.size - this.#reserved.first - this.#reserved.retry);",
      },
    ],
    run: (options) => runWebhookLoads(options, true),
    caughtBy: "fresh deliveries are as fast as without",
  },
  ...SLOT_CONTROLS,
];
