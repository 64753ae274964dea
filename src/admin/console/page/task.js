/** @import { Task } from "./objects.d.ts" */
/** @import { Context, Made } from "./views.js" */
import { readTask } from "./api.js";
import { accountLink, actions, badge, button, code, factList, heading, keyLink, moment } from "./dom.js";
import { count, endpointName } from "./format.js";
import { may } from "./session.js";
import { askRefund, askRelease } from "./task-actions.js";

/**
 * One request by its own id or its task's.
 * @param {Context} context
 * @returns {Promise<Made>}
 */
export async function showTask({ place, again }) {
  const task = await readTask(place.args[0] ?? "");
  return {
    nodes: [
      heading(task.task_id ? "Task" : "Request", again, badge(task.status)),
      factList([
        ["Task", task.task_id ? code(task.task_id) : undefined],
        ["Request", code(task.request_id)],
        ["Account", accountLink(task.account_id)],
        ["Key", task.key_id ? keyLink(task.account_id, task.key_id) : undefined],
        ["Endpoint", task.endpoint ? endpointName(task.endpoint) : undefined],
        ["Credits", task.price === null ? undefined : count(task.price)],
        ["Refunded", task.refunded ? "yes" : "no"],
        ["Admitted", task.created_at ? moment(task.created_at) : undefined],
        ["Bound", task.bound_at ? moment(task.bound_at) : undefined],
        ["Finished", task.finished_at ? moment(task.finished_at) : undefined],
      ]),
      ...actionsOf(task, again),
    ],
  };
}

/**
 * @param {Task} task
 * @param {() => void} again
 */
function actionsOf(task, again) {
  if (!may("tasks:write")) return [];
  const then = (/** @type {Promise<boolean>} */ asked) => void asked.then((done) => done && again());
  const isOpen = task.finished_at === null && !["completed", "failed", "void"].includes(task.status);
  return actions(
    isOpen && button("Release …", () => then(askRelease(task)), { className: "danger" }),
    ["completed", "failed"].includes(task.status) &&
      !task.refunded &&
      button("Refund …", () => then(askRefund(task)), { className: "danger" }),
  );
}
