/** @import { FoundRequest, OpenRequest, Outcomes, Releasable } from "../answers.ts" */
import { get } from "./api.js";
import { ask } from "./dialogs.js";
import {
  accountLink,
  age,
  button,
  code,
  count,
  el,
  heading,
  hint,
  moment,
  table,
  unreadNotes,
} from "./dom.js";

const AGES = { 0: "any age", 60: "1 minute", 600: "10 minutes", 1800: "30 minutes", 7200: "2 hours" };
const chosen = { seconds: "600" };

/**
 * Holds and tasks that have been open for long, with a way to end them.
 * @param {HTMLElement} view
 * @param {() => void} again
 * @param {boolean} writable
 */
export async function showTasks(view, again, writable) {
  const { requests, old, open, complete, looked_at_max, unread } = await get("open-requests", {
    older_than_seconds: chosen.seconds,
  });
  const select = el(
    "select",
    { id: "older-than" },
    ...Object.entries(AGES).map(([value, label]) =>
      el("option", { value, selected: value === chosen.seconds }, label),
    ),
  );
  select.addEventListener("change", () => {
    chosen.seconds = select.value;
    again();
  });
  const release = (/** @type {OpenRequest} */ row) =>
    button("Release …", () => askRelease(row, again), {
      "aria-label": `Release ${row.task_id ?? row.request_id}`,
    });
  const seen =
    requests.length < old ? `The oldest ${count(requests.length)} of ${count(old)} are shown. ` : "";
  const cut = complete ? "" : `Only ${count(looked_at_max)} were looked at; there may be older ones. `;
  view.replaceChildren(
    heading("Open tasks", again),
    el(
      "p",
      { className: "choice" },
      el("label", { htmlFor: "older-than" }, "Open for at least"),
      " ",
      select,
    ),
    hint(
      "Held: the generator has not named a task yet; the hold ends by itself at its next look. Else what it said last.",
    ),
    hint(`${count(open)} are open over all gateways, ${count(old)} of them for so long. ${seen}${cut}`),
    ...unreadNotes({ unread }),
    table(
      "Holds and unfinished tasks, oldest first",
      [
        { title: "Age", header: true, numeric: true, cell: (row) => age(row.age_seconds) },
        { title: "State", cell: stateOf },
        { title: "Next look", numeric: true, cell: (row) => nextLook(row.due_in_seconds) },
        { title: "Account", cell: (row) => accountLink(row.account_id) },
        { title: "Credits", numeric: true, cell: (row) => count(row.price) },
        { title: "Endpoint", cell: (row) => row.endpoint.replace("/api/v1/", "") },
        { title: "Task or request", wrap: true, cell: (row) => code(row.task_id ?? row.request_id) },
        ...(writable ? [{ title: "Action", action: true, cell: release }] : []),
      ],
      requests,
      "None is open for so long.",
    ),
  );
}

/** @param {OpenRequest} row */
const stateOf = ({ state, status }) => (state === "held" ? "held" : (status ?? "bound"));

/** @param {number} seconds until the sweeper looks at it; a negative one is overdue */
const nextLook = (seconds) => (seconds >= 0 ? `in ${age(seconds)}` : `overdue ${age(-seconds)}`);

/**
 * One request that was looked for by its id, or its task's.
 * @param {HTMLElement} view
 * @param {() => void} again
 * @param {FoundRequest} found
 * @param {boolean} writable
 */
export function showRequest(view, again, found, writable) {
  const facts = [
    ["State", found.state],
    ["Status", found.status],
    ["Account", found.account_id ? accountLink(found.account_id) : undefined],
    ["Key", found.key_id ? code(found.key_id) : undefined],
    ["Task", found.task_id ? code(found.task_id) : undefined],
    ["Request", code(found.request_id)],
    ["Endpoint", found.endpoint],
    ["Credits", found.price === undefined ? undefined : count(found.price)],
    ["Admitted", found.admitted_at ? moment(found.admitted_at) : undefined],
    ["Bound", found.bound_at ? moment(found.bound_at) : undefined],
    ["Ended", found.finished_at ? moment(found.finished_at) : undefined],
    ["Ended by", found.ended_by ?? found.void_reason],
  ].filter(([, value]) => value !== undefined);
  const release = button("Release …", () => askRelease(found, again), { className: "danger" });
  const open = found.state === "held" || found.state === "bound";
  view.replaceChildren(
    heading(found.task_id ? "Task" : "Request", again),
    el(
      "dl",
      { className: "facts" },
      ...facts.flatMap(([label, value]) => [el("dt", {}, label), el("dd", {}, value)]),
    ),
    ...(writable && open ? [el("p", {}, release)] : []),
  );
}

/**
 * @param {Releasable} row
 * @param {() => void} again
 */
async function askRelease(row, again) {
  const id = row.task_id ?? row.request_id;
  const credits = count(row.price ?? 0);
  const lines =
    row.state === "held"
      ? [
          `The hold of ${credits} credits of account ${row.account_id} is voided and its slot is free.`,
          "If the generator names a task for it later, that is bound and charged after all.",
        ]
      : [
          `The task ends as failed for account ${row.account_id}: its slot is free and ${credits} credits are refunded if it was charged.`,
          "The generator is not told: it may go on working on it.",
        ];
  const done = await ask({
    title: row.state === "held" ? "Release this hold?" : "Release this task?",
    lines: [id, ...lines],
    verb: "Release it",
    danger: true,
    action: "release",
    body: () => ({ id }),
    done: (answer) => outcomeOf(answer, id),
  });
  if (done) again();
}

/**
 * @param {Outcomes["release"]} answer
 * @param {string} id
 */
function outcomeOf(answer, id) {
  switch (answer.outcome) {
    case "ended":
      return `Task ${id} ended as failed; its slot is free and ${count(answer.refunded)} credits are refunded.`;
    case "voided":
      return `The hold of ${id} is voided; its slot is free and ${count(answer.credits)} credits can be spent again.`;
    case "already_void":
      return `The hold of ${id} was voided before; nothing is changed.`;
    default:
      return `Task ${id} had ended before; nothing is changed.`;
  }
}
