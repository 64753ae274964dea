import { listOpenRequests } from "../api.js";
import { badge, heading, hint, keyLink, taskLink, unreadNote } from "../dom.js";
import { age, count, endpointName } from "../format.js";
import { ACCOUNT_COLUMN, filtered, table } from "../table.js";

const AGES = /** @type {const} */ ([
  ["0", "any"],
  ["60", "1 minute"],
  ["", "10 minutes"],
  ["1800", "30 minutes"],
  ["7200", "2 hours"],
]);
const USUAL_SECONDS = 600;

/** @param {Context} context @returns {Promise<Content>} */
export async function showOpenTasks({ place, again }) {
  const seconds = Number(place.query.get("older") || USUAL_SECONDS);
  const filters = [{ name: "older", label: "Age, at least", options: AGES }];
  return [heading("Open tasks", again), await filtered(filters, () => openRequests(seconds))];
}

/** @param {number} seconds */
async function openRequests(seconds) {
  const { data, old, open, complete, looked_at_max, unread } = await listOpenRequests(seconds);
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
