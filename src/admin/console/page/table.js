import { accountLink, Component, failureNote, h, html, link, say } from "./dom.js";
import { here, hrefHere, noteHere } from "./location.js";
import { isSecret, SECRET_SEARCHED } from "./requests.js";

/** @typedef {string | number | boolean | null | undefined} Value */

/**
 * A column shows a value, by which it can be sorted, or else a cell of its own.
 * @template Row
 * @typedef {object} Column
 * @property {string} title
 * @property {(row: Row) => Value} [of]
 * @property {(value: never) => Content} [as] how the value is shown; it takes what `of` gives
 * @property {(row: Row) => Content} [cell]
 * @property {readonly string[]} [orders] names by which the gateway sorts over all pages, the first at the first press
 * @property {boolean} [numeric]
 * @property {boolean} [header] it names the row
 * @property {boolean} [wrap]
 * @property {boolean} [wide] it wraps, and has more text than the others
 */

/** @typedef {{ name: string, down: boolean }} Order */
/** @typedef {(order: Order, sortBy: (name: string) => void) => Content} Draw */

/** In a narrow window each row is a card. @template Row @param {string} caption @param {Column<Row>[]} columns @param {readonly Row[]} rows @param {string} empty instead of rows @param {string} [sortedAs] name in the address */
export function table(caption, columns, rows, empty, sortedAs = "sort") {
  const none = html`<tr role="row"><td colspan=${columns.length} class="empty" role="cell">${empty}</td></tr>`;
  /** @type {Draw} */
  const draw = (order, sortBy) => {
    const body = sorted(rows, columns, order).map(
      (row) => html`<tr role="row">${columns.map((column) => cellOf(column, row))}</tr>`,
    );
    const sorters = columns.filter(({ of, orders }) => of || orders);
    return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}>
      ${
        rows.length > 1 &&
        sorters.length > 0 &&
        html`<details class="sorting"><summary>Sort</summary>
        ${sorters.map((one) => html`<span>${sorter(one, order, sortBy)}</span> `)}</details>`
      }
      <table role="table">
        <caption>${caption}</caption>
        <thead role="rowgroup"><tr role="row">${columns.map((one) => titleOf(one, order, sortBy))}</tr></thead>
        <tbody role="rowgroup">${body.length > 0 ? body : none}</tbody>
      </table>
    </div>`;
  };
  return h(Sorted, { draw, sortedAs });
}

/** Draws anew when another column is sorted by. @extends {Component<{ draw: Draw, sortedAs: string }>} */
class Sorted extends Component {
  render() {
    const { draw, sortedAs } = this.props;
    const text = here().query.get(sortedAs) ?? "";
    const order = { name: text.replace(/^-/, ""), down: text.startsWith("-") };
    return draw(order, (name) => {
      noteHere({ [sortedAs]: order.name === name && !order.down ? `-${name}` : name });
      this.forceUpdate();
    });
  }
}

/** @param {string} title */
const nameOf = (title) => title.toLowerCase().replaceAll(/\W+/g, "-");

/** How a column is sorted by now. @template Row @param {Column<Row>} column @param {Order} order */
function wayOf({ title, of, orders }, order) {
  const name = here().query.get("order") ?? "";
  if (orders) return orders.includes(name) ? (name.startsWith("-") ? "descending" : "ascending") : undefined;
  return of && order.name === nameOf(title) ? (order.down ? "descending" : "ascending") : undefined;
}

/** @template Row @param {Column<Row>} column @param {Order} order @param {(name: string) => void} sortBy */
function titleOf(column, order, sortBy) {
  return html`<th scope="col" role="columnheader" class=${kindOf(column)} aria-sort=${wayOf(column, order)}>${sorter(column, order, sortBy)}</th>`;
}

/** The control that sorts by a column: a link where the gateway sorts over all pages. @template Row @param {Column<Row>} column @param {Order} order @param {(name: string) => void} sortBy */
function sorter(column, order, sortBy) {
  const { title, of, orders } = column;
  if (!of && !orders) return title;
  const way = wayOf(column, order);
  const arrow = way && html`<span aria-hidden="true">${way === "descending" ? " ▼" : " ▲"}</span>`;
  if (!orders)
    return html`<button type="button" class="sort" onClick=${() => sortBy(nameOf(title))}>${title}${arrow}</button>`;
  const at = orders.indexOf(here().query.get("order") ?? "");
  return html`<a class="sort" href=${hrefHere({ order: orders[(at + 1) % orders.length] })}>${title}${arrow}</a>`;
}

/** @param {{ numeric?: boolean, wrap?: boolean, wide?: boolean }} column */
const kindOf = ({ numeric, wrap, wide }) =>
  numeric ? "number" : wide ? "wrap wide" : wrap ? "wrap" : undefined;

/** @template Row @param {Column<Row>} column @param {Row} row */
function cellOf(column, row) {
  const { title, header, of, as, cell } = column;
  const value = of?.(row);
  const shown = as ? /** @type {(value: Value) => Content} */ (as)(value) : (value ?? "–");
  const content = cell ? cell(row) : shown;
  const kind = kindOf(column);
  if (header)
    return html`<th scope="row" role="rowheader" class=${kind} data-label=${title}><div>${content}</div></th>`;
  // A card has no line for what is not there.
  const none = content === "–" || content === "" || content === undefined ? "none" : "";
  return html`<td role="cell" class=${`${kind ?? ""} ${none}`.trim()} data-label=${title}><div>${content}</div></td>`;
}

/** @template Row @param {readonly Row[]} rows @param {Column<Row>[]} columns @param {Order} order */
function sorted(rows, columns, { name, down }) {
  const of = columns.find((column) => nameOf(column.title) === name)?.of;
  if (!of) return rows;
  const before = down ? 1 : -1;
  return [...rows].sort((a, b) => {
    const [one, two] = [of(a) ?? "", of(b) ?? ""];
    if (one === two) return 0;
    // Unknown values come last, whichever way.
    if (one === "" || two === "") return one === "" ? 1 : -1;
    return one < two ? before : -before;
  });
}

/** A page of a list. @template Row @param {string} caption @param {Column<Row>[]} columns @param {{ data: Row[], next_cursor: string | null }} page @param {string} [order] in words @param {string} [empty] instead of rows */
export const pagedTable = (caption, columns, page, order = "Latest first.", empty = "There are none.") => [
  table(caption, columns, page.data, empty),
  paging(page, order),
];

/** Of what was looked at so far. */
export const NONE_SO_FAR = "None among those looked at so far; go on to the next page.";

/** Back leads to the page before. @param {{ next_cursor: string | null }} list @param {string} order in words @param {boolean} [isSorted] over all pages */
export function paging({ next_cursor: next }, order, isSorted = false) {
  const cursor = here().query.get("cursor");
  return html`<p class="paging">
    ${cursor && link(hrefHere({}), "First page")}
    ${next && link(hrefHere({ cursor: next }), "Next page")}
    <span class="hint">${order + ((next || cursor) && !isSorted ? " Sorting is of this page." : "")}</span>
  </p>`;
}

/**
 * @typedef {object} Filter
 * @property {string} name in the address
 * @property {string} label
 * @property {"search" | "date" | "month" | "moment"} [type] all are UTC: days as 2026-11-30, moments with a time
 * @property {string} [placeholder]
 * @property {string} [usual] its value where the address has none
 * @property {boolean} [needed] without a value there is nothing to show
 * @property {readonly (readonly [value: string, label: string])[]} [options] of a choice
 */

/** The days of a list. @type {[from: Filter, to: Filter]} */
export const DAYS = [
  { name: "from", label: "From", type: "date" },
  { name: "to", label: "to", type: "date" },
];

/** A choice among words. @param {string} none without a choice @param {readonly string[]} words @returns {[value: string, label: string][]} */
export const choiceOf = (none, words) => [
  ["", none],
  ...words.map((one) => /** @type {[string, string]} */ ([one, one])),
];

/** The account that a row is about. @type {Column<{ account_id: string, label: string | null }>} */
export const LABELLED_ACCOUNT = {
  title: "Account",
  header: true,
  wrap: true,
  cell: (row) => accountLink(row.account_id, row.label),
};

/** The account of a row, with its label. @type {Column<{ account_id: string | null, account_label: string | null }>} */
export const ACCOUNT_COLUMN = {
  title: "Account",
  wrap: true,
  cell: (row) => accountLink(row.account_id, row.account_label),
  of: (row) => row.account_id,
};

/** Where rows are cards, more than three filters would fill the window, and are folded away, unless one of them is needed. */
const NARROW = matchMedia("(max-width: 640px)");

/**
 * A form whose values stand in the address, so that Back undoes a filter, and below it what the filter lets through. Where
 * that cannot be read, the form stays beside the reason, and may be mended.
 * @param {Filter[]} filters
 * @param {() => Promise<Content>} read
 * @param {Content} [more] beside the form's button
 */
export async function filtered(filters, read, more) {
  const { query } = here();
  const isLong = filters.length > 3;
  let isFolded = NARROW.matches && !filters.some(({ name, needed }) => needed && !query.get(name));
  const content = await read().catch((error) => {
    isFolded = false;
    return failureNote(error);
  });
  const given = filters.filter(({ name }) => query.get(name)).length;
  const fields = html`${filters.map((filter) => filterField(filter, query.get(filter.name) ?? filter.usual ?? ""))}
    <button type="submit">Show</button>`;
  const form = html`<search><form class="filter" onSubmit=${showFiltered}>
    ${
      isLong
        ? html`<details class="filters" open=${!isFolded}>
      <summary>Filters${given > 0 && `, ${given} set`}</summary>
      <div class="filter">${fields}</div>
    </details>`
        : fields
    }${more}
  </form></search>`;
  return [form, content];
}

/** A browser would show its own form of a date. */
const TYPES = {
  search: { type: "search" },
  date: {
    class: "day",
    placeholder: "2026-11-30",
    title: "a UTC day, such as 2026-11-30",
    pattern: "\\d{4}-\\d\\d-\\d\\d",
  },
  month: {
    class: "day",
    placeholder: "2026-11",
    title: "a UTC month, such as 2026-11",
    pattern: "\\d{4}-\\d\\d",
  },
  moment: {
    placeholder: "2026-11-30 14:03",
    title: "a time in UTC, such as 2026-11-30 14:03:59, or 14:03 of today",
  },
};

/** @param {Filter} filter @param {string} value */
function filterField({ name, label, type = "search", placeholder, options }, value) {
  const id = `filter-${name}`;
  const control = options
    ? html`<select id=${id} name=${name} onChange=${applyChoice}>${optionList(options, value)}</select>`
    : html`<input id=${id} name=${name} value=${value} spellcheck=${false} autocomplete="off" ...${{ placeholder, ...TYPES[type] }} />`;
  return html`<span class="filter-field"><label for=${id}>${label}</label>${control}</span>`;
}

/** @param {readonly (readonly [value: string, label: string])[]} options @param {string | undefined} value */
export const optionList = (options, value) =>
  options.map(([of, label]) => html`<option value=${of} defaultSelected=${of === value}>${label}</option>`);

/** A choice applies at once; what was typed beside it goes with it. @param {{ currentTarget: HTMLSelectElement }} event */
const applyChoice = ({ currentTarget }) => currentTarget.form?.requestSubmit();

/** @param {SubmitEvent & { currentTarget: HTMLFormElement }} event */
function showFiltered(event) {
  event.preventDefault();
  const given = [...new FormData(event.currentTarget)].map(([name, value]) => [name, String(value).trim()]);
  if (given.some(([, value = ""]) => isSecret(value))) return say(SECRET_SEARCHED);
  const href = hrefHere(Object.fromEntries(given));
  // Filters that did not change are read again.
  if (href === location.hash) dispatchEvent(new Event("hashchange"));
  else location.hash = href;
}

/** Where a spreadsheet may take what follows for a formula: at the beginning, and behind what another one takes for the end of a cell. */
const FORMULA = /(^|[;\t\r\n])(?=[" \u00a0]{0,20}[=+\-@＝＋－＠])/g;

/** As RFC 4180 has it; an apostrophe leads what could be a formula. @param {string | number | null | undefined} value */
function csvCell(value) {
  if (value === null || value === undefined || value === "") return "";
  if (typeof value === "number") return String(value);
  const lead = /^[\t\r\n]/.test(value) ? "'" : "";
  return `"${lead}${value.replace(FORMULA, "$1'").replaceAll('"', '""')}"`;
}

/** @param {string} name of the file @param {string[]} titles of columns: each row's properties @param {object[]} rows */
export function downloadCsv(name, titles, rows) {
  const lineOf = (/** @type {object} */ row) =>
    titles.map((title) => csvCell(Reflect.get(row, title))).join(",");
  const lines = [titles.join(","), ...rows.map(lineOf)].map((line) => `${line}\r\n`);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(lines, { type: "text/csv;charset=utf-8" }));
  link.download = name;
  link.click();
  // The browser has begun to read it when this runs.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
