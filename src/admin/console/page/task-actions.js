/** @import { Release } from "./objects.d.ts" */
import { refundTask, releaseTask } from "./api.js";
import { ask } from "./dialogs.js";
import { reference, required } from "./fields.js";
import { count, signed } from "./format.js";

/**
 * What a question about a request needs.
 * @typedef {object} Releasable
 * @property {string | null | undefined} [task_id]
 * @property {string} request_id
 * @property {string} account_id
 * @property {number | null} price
 * @property {string | null | undefined} [status]
 * @property {string} [state]
 */

/** @param {Releasable} task */
export function askRelease(task) {
  const id = task.task_id ?? task.request_id;
  const credits = count(task.price ?? 0);
  const isHeld = (task.state ?? task.status) === "held";
  const lines = isHeld
    ? [
        `The hold of ${credits} credits of account ${task.account_id} is voided and its slot is free.`,
        "If the upstream names a task for it later, that is bound and charged after all.",
      ]
    : [
        `The task ends as failed for account ${task.account_id}: its slot is free and ${credits} credits are refunded if it was charged.`,
        "The upstream is not told: it may go on working on it.",
      ];
  return ask({
    title: isHeld ? "Release this hold?" : "Release this task?",
    lines: [id, ...lines],
    verb: "Release it",
    danger: true,
    async run() {
      const released = await releaseTask(id);
      return { said: outcomeOf(released, id), confirmed: released.confirmed };
    },
  });
}

/**
 * @param {Release} released
 * @param {string} id
 */
function outcomeOf({ outcome, refunded = 0, credits = 0 }, id) {
  switch (outcome) {
    case "already_void":
      return `The hold of ${id} was voided before; nothing is changed.`;
    case "already_finished":
      return `Task ${id} had ended before; nothing is changed.`;
    case "voided":
      return `The hold of ${id} is voided; its slot is free and ${count(credits)} credits can be spent again.`;
    default:
      return `Task ${id} ended as failed; its slot is free and ${count(refunded)} credits are refunded.`;
  }
}

/** @param {Releasable} task */
export function askRefund(task) {
  const id = task.task_id ?? task.request_id;
  return ask({
    title: "Refund this task?",
    lines: [
      `${count(task.price ?? 0)} credits of task ${id} go back to account ${task.account_id}. A task is refunded once.`,
    ],
    fields: [
      { name: "reason", label: "Reason", hint: "Why; it stands in the ledger.", check: required },
      { name: "reference", label: "Reference", hint: "Such as a ticket.", check: reference },
    ],
    verb: "Refund it",
    danger: true,
    async run({ reason, reference: of }) {
      const { value, isRepeat } = await refundTask(id, { reason, reference: of });
      const { amount, balance, confirmed } = value;
      if (isRepeat) return { said: `Nothing is changed: task ${id} was refunded before.`, confirmed };
      return {
        said: `${signed(amount)} credits for ${task.account_id}: task ${id} is refunded. The balance is ${count(balance)}.`,
        confirmed,
      };
    },
  });
}
