import { may, refundTask, releaseTask } from "../api.js";
import { Copyable } from "../copyable.js";
import { ask } from "../dialogs.js";
import {
  accountLink,
  actions,
  asking,
  badge,
  code,
  factList,
  failureNote,
  heading,
  hint,
  html,
  keyLink,
  link,
  moment,
  taskLink,
  unreadNote,
} from "../dom.js";
import { reasonField, referenceField } from "../fields.js";
import { age, count, endpointName, momentText, signed } from "../format.js";
import { hrefTo } from "../location.js";
import { viewRequests } from "../requests.js";
import { entrySentence } from "../sentences.js";
import { ACCOUNT_COLUMN, filtered, table } from "../table.js";

/** The upstream gave none, or nobody asked it. */
const NO_REASON = "None is known: the upstream gave none, or the task was released, or too old.";

/** One request by its own id or its task's: what became of it, and of its credits. @param {Context} context @returns {Promise<Content>} */
export async function showTask({ place, again }) {
  const asked = viewRequests.task(place);
  const [task, entries] = await Promise.all([asked.task, asked.entries?.catch((error) => ({ error }))]);
  const { account_id: account, key_id: keyId } = task;
  const known = entries && "data" in entries ? entries.data : undefined;
  return [
    heading(task.task_id ? "Task" : "Request", again, badge(task.status)),
    may("tasks:write") && taskActions(task, known, again),
    factList([
      ["Task", task.task_id && code(task.task_id)],
      ["Request", code(task.request_id)],
      ["Account", accountLink(account, task.account_label)],
      ["Key", keyId && keyLink(account, keyId, task.key_label)],
      ["Endpoint", endpointName(task.endpoint)],
      ["Credits", task.price === null ? undefined : count(task.price)],
      ["Refunded", task.refunded ? "yes" : "no"],
      ["Admitted", task.created_at && moment(task.created_at)],
      ["Charged", task.bound_at && moment(task.bound_at)],
      ["Finished", task.finished_at && moment(task.finished_at)],
      ["Why it failed", task.status === "failed" ? (task.failure_reason ?? NO_REASON) : ""],
      ["Video", task.video_url && code(task.video_url)],
    ]),
    known && entriesTable(account, known),
    entries && "error" in entries && failureNote(entries.error),
    html`<h3 class="section">For the customer</h3>
      <${Copyable} name="answer" label="For the customer" value=${answerText(task, known)} />`,
  ];
}

/** @param {string} account @param {Transaction[]} entries */
const entriesTable = (account, entries) =>
  table(
    "Its transactions (UTC)",
    [
      { title: "When", header: true, of: (one) => one.created_at, as: moment },
      { title: "What", wide: true, cell: entrySentence },
      { title: "Credits", numeric: true, of: (one) => one.amount, as: signed },
      { title: "Balance after", numeric: true, of: (one) => one.balance_after, as: count },
      {
        title: "Transaction",
        wrap: true,
        cell: (one) => link(hrefTo(["account", account, "transactions"], { id: one.id }), code(one.id)),
      },
    ],
    entries,
    "It has none: nothing was charged.",
  );

/** The end of the video and of its credits, in words for the customer. @param {TaskDetail} task @param {Transaction[] | undefined} entries undefined where they are not known */
function answerText(task, entries) {
  const id = task.task_id ?? task.request_id;
  return [
    `Your video of ${momentText(task.created_at)} UTC (${id}) ${endText(task)}`,
    moneyText(task, entries),
  ]
    .filter(Boolean)
    .join("\n");
}

/** @param {TaskDetail} task */
function endText({ status, failure_reason: reason, video_url: url, finished_at: at }) {
  switch (status) {
    case "failed":
      return reason ? `failed: ${reason.replace(/[.\s]+$/, "")}.` : "failed. No reason is known.";
    case "completed":
      return `was completed at ${momentText(at)} UTC${url ? `: ${url}` : "."}`;
    case "void":
      return "was not made: the video service did not take it.";
    default:
      return "is being made.";
  }
}

/** @param {TaskDetail} task @param {Transaction[] | undefined} entries */
function moneyText({ status, price, refunded }, entries) {
  if (status === "held") return `${count(price)} credits are held for it and are not charged yet.`;
  if (status === "void" || !price) return "Nothing was charged for it.";
  const back = entries?.findLast(({ kind, amount }) => kind !== "charge" && amount > 0);
  const cost = entries?.reduce((sum, { amount }) => sum - amount, 0) ?? (refunded ? 0 : price);
  const when = back ? ` at ${momentText(back.created_at)} UTC` : "";
  if (cost <= 0) return `Its ${count(price)} credits went back to your balance${when}: it cost you nothing.`;
  if (back && cost < price)
    return `${count(back.amount)} of its credits went back${when}: it cost ${count(cost)}.`;
  return `It cost ${count(cost)} credits.`;
}

/** @param {Task} task @param {Transaction[] | undefined} entries @param {() => void} again */
function taskActions(task, entries, again) {
  const hasEnded = ["completed", "failed"].includes(task.status);
  // Of a price that was corrected a part has gone back, and nothing else does.
  const isCorrected = entries?.some(({ kind }) => kind === "adjustment");
  const isOpen = task.finished_at === null && !hasEnded && task.status !== "void";
  return actions(
    isOpen && asking("Release …", () => askRelease(task), again, "danger"),
    hasEnded && !task.refunded && !isCorrected && asking("Refund …", () => askRefund(task), again, "danger"),
  );
}

/** @param {Task} task */
function askRelease(task) {
  const id = task.task_id ?? task.request_id;
  const credits = count(task.price ?? 0);
  const isHeld = task.status === "held";
  const lines = isHeld
    ? [
        `The hold of ${credits} credits of account ${task.account_id} is voided and its slot is free.`,
        "If the upstream names a task for it later, it is charged after all.",
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

/** @param {Release} released @param {string} id */
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

/** @param {Task} task */
function askRefund(task) {
  const id = task.task_id ?? task.request_id;
  return ask({
    title: "Refund this task?",
    lines: [
      `${count(task.price ?? 0)} credits of task ${id} go back to account ${task.account_id}. A task is refunded once.`,
    ],
    fields: [reasonField(), referenceField("Such as a ticket.")],
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

const AGES = /** @type {const} */ ([
  ["0", "any"],
  ["60", "1 minute"],
  ["", "10 minutes"],
  ["1800", "30 minutes"],
  ["7200", "2 hours"],
]);

/** @param {Context} context @returns {Promise<Content>} */
export async function showOpenTasks({ place, again }) {
  const { seconds, open } = viewRequests.tasks(place);
  const filters = [{ name: "older", label: "Age, at least", options: AGES }];
  return [
    heading("Open tasks", again),
    await filtered(filters, async () => openRequests(seconds, await open)),
  ];
}

/** @param {number} seconds @param {OpenRequests} all */
function openRequests(seconds, { data, old, open, complete, looked_at_max, unread }) {
  const olds = seconds > 0 ? `, ${count(old)} of them for so long` : "";
  const seen = data.length < old ? `The oldest ${count(data.length)} of ${count(old)} are shown. ` : "";
  const cut = complete ? "" : `Only ${count(looked_at_max)} were looked at; there may be older ones. `;
  return [
    hint(`${count(open)} are open over all gateways${olds}. ${seen}${cut}`),
    unreadNote({ unread }),
    table(
      "Holds and unfinished tasks",
      [
        { title: "Age", header: true, numeric: true, of: (row) => row.age_seconds, as: age },
        { title: "State", of: requestState, as: badge },
        { title: "Next poll", numeric: true, of: (row) => row.due_in_seconds, as: untilPoll },
        ACCOUNT_COLUMN,
        { title: "Key", cell: (row) => keyLink(row.account_id, row.key_id, row.key_label) },
        { title: "Credits", numeric: true, of: (row) => row.price, as: count },
        { title: "Endpoint", of: (row) => row.endpoint, as: endpointName },
        { title: "Task or request", wrap: true, cell: (row) => taskLink(row.task_id ?? row.request_id) },
      ],
      data,
      seconds > 0 ? "None is open for so long." : "None is open.",
    ),
    hint(
      "Oldest first. Held: the upstream has not named a task yet; the hold ends by itself then. Else the state is what the upstream said last. To end one, open it.",
    ),
  ];
}

/** @param {OpenRequest} row */
const requestState = ({ state, status }) => (state === "held" ? "held" : (status ?? "processing"));

/** @param {number} seconds until the sweeper looks at it; a negative one is overdue */
const untilPoll = (seconds) => (seconds >= 0 ? `in ${age(seconds)}` : `overdue ${age(-seconds)}`);
