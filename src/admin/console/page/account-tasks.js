/** @import { Account } from "./objects.d.ts" */
/** @import { Context, Made } from "./views.js" */
import { listPrices, listTasks } from "./api.js";
import { badge, keyLink, moment, taskLink } from "./dom.js";
import { filtered, filterForm } from "./filters.js";
import { count, endpointName } from "./format.js";
import { paging, table } from "./table.js";

const PER_PAGE = 50;

const STATUSES = /** @type {const} */ ([
  ["", "all"],
  ["held", "held"],
  ["processing", "processing"],
  ["completed", "completed"],
  ["failed", "failed"],
  ["void", "void"],
]);

/**
 * The requests of an account, latest first; what can be done to one is on its own page.
 * @param {Account} account
 * @param {Context} context
 * @returns {Promise<Made>}
 */
export async function showAccountTasks({ account_id: id }, { place: { query } }) {
  const endpoints = await listPrices().then(
    ({ data }) => data.map(({ endpoint }) => endpoint),
    () => [],
  );
  const names = endpoints.map((name) => /** @type {const} */ ([`/api/v1/${name}`, name]));
  const form = filterForm([
    { name: "status", label: "Status", options: STATUSES },
    { name: "endpoint", label: "Endpoint", options: [["", "all"], ...names] },
    { name: "from", label: "From", type: "date" },
  ]);
  return { nodes: await filtered(form, () => tasksPage(id, query)) };
}

/**
 * @param {string} id
 * @param {URLSearchParams} query
 */
async function tasksPage(id, query) {
  const page = await listTasks(id, {
    status: query.get("status") ?? "",
    endpoint: query.get("endpoint") ?? "",
    from: query.get("from") ?? "",
    cursor: query.get("cursor") ?? "",
    limit: PER_PAGE,
  });
  return [
    table(
      "Tasks (UTC)",
      [
        { title: "When", header: true, cell: (one) => moment(one.created_at), by: (one) => one.created_at },
        { title: "Status", cell: (one) => badge(one.status), by: (one) => one.status },
        { title: "Credits", numeric: true, cell: (one) => count(one.price), by: (one) => one.price },
        {
          title: "Refunded",
          cell: (one) => (one.refunded ? "yes" : "no"),
          by: (one) => String(one.refunded),
        },
        { title: "Endpoint", cell: (one) => endpointName(one.endpoint), by: (one) => one.endpoint },
        { title: "Task or request", wrap: true, cell: (one) => taskLink(one.task_id ?? one.request_id) },
        { title: "Key", cell: (one) => keyLink(one.account_id, one.key_id) },
        { title: "Finished", cell: (one) => moment(one.finished_at), by: (one) => one.finished_at },
      ],
      page.data,
      "There are none.",
    ),
    paging(page, "Open ones first, then the latest. To find one, search for its id."),
  ];
}
