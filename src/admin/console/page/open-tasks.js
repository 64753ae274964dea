/** @import { OpenRequest } from "./objects.d.ts" */
/** @import { Context, Made } from "./views.js" */
import { listOpenRequests } from "./api.js";
import { accountLink, badge, heading, hint, taskLink, unreadNotes } from "./dom.js";
import { filtered, filterForm } from "./filters.js";
import { age, count, endpointName } from "./format.js";
import { table } from "./table.js";

const AGES = /** @type {const} */ ([
  ["0", "any"],
  ["60", "1 minute"],
  ["", "10 minutes"],
  ["1800", "30 minutes"],
  ["7200", "2 hours"],
]);
const USUAL_SECONDS = 600;

/**
 * Holds and tasks that have been open for long, over all accounts; a way to end one is on its own page.
 * @param {Context} context
 * @returns {Promise<Made>}
 */
export async function showOpenTasks({ place, again }) {
  const seconds = Number(place.query.get("older") || USUAL_SECONDS);
  const form = filterForm([{ name: "older", label: "Age, at least", options: AGES }]);
  return { nodes: [heading("Open tasks", again), ...(await filtered(form, () => openRequests(seconds)))] };
}

/** @param {number} seconds */
async function openRequests(seconds) {
  const { data, old, open, complete, looked_at_max, unread } = await listOpenRequests(seconds);
  const olds = seconds > 0 ? `, ${count(old)} of them for so long` : "";
  const seen = data.length < old ? `The oldest ${count(data.length)} of ${count(old)} are shown. ` : "";
  const cut = complete ? "" : `Only ${count(looked_at_max)} were looked at; there may be older ones. `;
  return [
    hint(`${count(open)} are open over all gateways${olds}. ${seen}${cut}`),
    ...unreadNotes({ unread }),
    table(
      "Holds and unfinished tasks",
      [
        {
          title: "Age",
          header: true,
          numeric: true,
          cell: (row) => age(row.age_seconds),
          by: (row) => row.age_seconds,
        },
        { title: "State", cell: (row) => badge(stateOf(row)), by: stateOf },
        {
          title: "Next look",
          numeric: true,
          cell: (row) => nextLook(row.due_in_seconds),
          by: (row) => row.due_in_seconds,
        },
        {
          title: "Account",
          wrap: true,
          cell: (row) => accountLink(row.account_id),
          by: (row) => row.account_id,
        },
        { title: "Credits", numeric: true, cell: (row) => count(row.price), by: (row) => row.price },
        { title: "Endpoint", cell: (row) => endpointName(row.endpoint), by: (row) => row.endpoint },
        { title: "Task or request", wrap: true, cell: (row) => taskLink(row.task_id ?? row.request_id) },
      ],
      data,
      seconds > 0 ? "None is open for so long." : "None is open.",
    ),
    hint(
      "Oldest first. Held: the upstream has not named a task yet; the hold ends by itself at its next look. Else the state is what the upstream said last. To end one, open it.",
    ),
  ];
}

/** @param {OpenRequest} row */
const stateOf = ({ state, status }) => (state === "held" ? "held" : (status ?? "processing"));

/** @param {number} seconds until the sweeper looks at it; a negative one is overdue */
const nextLook = (seconds) => (seconds >= 0 ? `in ${age(seconds)}` : `overdue ${age(-seconds)}`);
