import { listRefusalsOfKey } from "../api.js";
import { code, hint, html, moment } from "../dom.js";
import { age, count } from "../format.js";
import { CAPS, TIER_LIMITS } from "../limits.js";
import { pageOf } from "../location.js";
import { choiceOf, filtered, pagedTable } from "../table.js";

const OUTCOMES = [...[...TIER_LIMITS, ...CAPS].map(({ refusal }) => refusal), "insufficient_credits"];

const KEY_REFUSAL_FILTERS = [
  { name: "outcome", label: "Limit", options: choiceOf("all", OUTCOMES) },
  { name: "from", label: "From (UTC)" },
  { name: "to", label: "to" },
  { name: "request_id", label: "Request" },
];

/** The latest refusals of a key, one by one. @param {string} account @param {string} id @param {URLSearchParams} query @returns {Promise<Content>} */
export async function refusalsOfKey(account, id, query) {
  const list = await filtered(KEY_REFUSAL_FILTERS, async () => {
    const [from, to] = ["from", "to"].map((name) => timeOfText(query.get(name) ?? ""));
    const filter = pageOf(query, ["outcome", "request_id"]);
    const page = await listRefusalsOfKey(account, id, { ...filter, from, to });
    return pagedTable(
      "Refused requests (UTC)",
      [
        { title: "When", header: true, of: (one) => one.at, as: moment },
        { title: "Why", of: (one) => one.outcome, as: code },
        { title: "Used of the limit", numeric: true, cell: usedOfLimit, of: (one) => one.used },
        { title: "Wait", numeric: true, of: (one) => one.retry_after, as: waitText },
        { title: "Request", wrap: true, of: (one) => one.request_id, as: code },
        { title: "The client's id", wrap: true, of: (one) => one.client_request_id, as: clientId },
      ],
      page,
    );
  });
  return [
    html`<h3 class="section">Refusals</h3>`,
    list,
    hint(
      "The last 1,000 of the last day, some seconds behind. The wait is what Retry-After said. A time is as in the rows, or to the minute: 2026-11-30 14:03.",
    ),
  ];
}

/** A time as a row has it, or to the minute, as the API takes it. @param {string} text */
const timeOfText = (text) =>
  text.replace(
    /^(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d)(:\d\d)?$/,
    (_, day, time, seconds = ":00") => `${day}T${time}${seconds}Z`,
  );

/** @param {KeyRefusal} refusal */
const usedOfLimit = ({ used, limit }) => (limit === null ? "–" : `${count(used)} of ${count(limit)}`);

/** @param {number | null} seconds */
const waitText = (seconds) => (seconds === null ? "–" : age(seconds));

/** @param {string | null} id */
const clientId = (id) => (id ? code(id) : "–");
