import { el, link } from "./dom.js";
import { here, hrefHere, noteHere } from "./location.js";

/** @import { Child } from "./dom.js" */

/**
 * @template Row
 * @typedef {object} Column
 * @property {string} title
 * @property {(row: Row) => Child | Child[]} cell
 * @property {(row: Row) => string | number | null | undefined} [by] what the rows can be sorted by
 * @property {boolean} [numeric]
 * @property {boolean} [header] it names the row
 * @property {boolean} [wrap]
 * @property {boolean} [wide] it wraps, and has more text than the others
 */

/** @typedef {{ name: string, down: boolean }} Order */

/**
 * A table with a caption. In a narrow window each row is a card of its own; the titles then stand beside the values.
 * @template Row
 * @param {string} caption
 * @param {Column<Row>[]} columns
 * @param {readonly Row[]} rows
 * @param {string} empty what to say when there are none
 * @param {string} [sortedAs] name in the address of what it is sorted by, where a view has several
 */
export function table(caption, columns, rows, empty, sortedAs = "sort") {
  const head = el("tr", { role: "row" });
  const body = el("tbody", { role: "rowgroup" });
  const draw = () => {
    const order = orderOf(here().query.get(sortedAs) ?? "");
    head.replaceChildren(...columns.map((column) => titleOf(column, order, sortBy)));
    const shown = sorted(rows, columns, order).map((row) => rowOf(columns, row));
    const none = el("td", { colSpan: columns.length, className: "empty", role: "cell" }, empty);
    body.replaceChildren(...(shown.length > 0 ? shown : [el("tr", { role: "row" }, none)]));
  };
  /** @param {string} name */
  const sortBy = (name) => {
    const order = orderOf(here().query.get(sortedAs) ?? "");
    noteHere({ [sortedAs]: order.name === name && !order.down ? `-${name}` : name });
    draw();
    const pressed = head.querySelector("[aria-sort] button");
    if (pressed instanceof HTMLElement) pressed.focus();
  };
  draw();
  return el(
    "div",
    { className: "scroll", tabIndex: 0, role: "region", "aria-label": caption },
    el("table", { role: "table" }, el("caption", {}, caption), el("thead", { role: "rowgroup" }, head), body),
  );
}

/** @param {string} text such as `balance` or `-balance` @returns {Order} */
const orderOf = (text) => ({ name: text.replace(/^-/, ""), down: text.startsWith("-") });

/** @param {string} title */
const nameOf = (title) => title.toLowerCase().replaceAll(/\W+/g, "-");

/**
 * @template Row
 * @param {Column<Row>} column
 * @param {Order} order
 * @param {(name: string) => void} sortBy
 */
function titleOf(column, order, sortBy) {
  const { title, by } = column;
  const name = nameOf(title);
  const isOrder = by !== undefined && order.name === name;
  const press = el("button", { type: "button", className: "sort" }, title);
  if (isOrder) press.append(el("span", { "aria-hidden": "true" }, order.down ? " ▼" : " ▲"));
  press.addEventListener("click", () => sortBy(name));
  return el(
    "th",
    {
      scope: "col",
      role: "columnheader",
      className: kindOf(column),
      "aria-sort": isOrder ? (order.down ? "descending" : "ascending") : undefined,
    },
    by ? press : title,
  );
}

/** @param {{ numeric?: boolean, wrap?: boolean, wide?: boolean }} column */
const kindOf = ({ numeric, wrap, wide }) =>
  numeric ? "number" : wide ? "wrap wide" : wrap ? "wrap" : undefined;

/**
 * @template Row
 * @param {Column<Row>[]} columns
 * @param {Row} row
 */
const rowOf = (columns, row) =>
  el(
    "tr",
    { role: "row" },
    ...columns.map((column) => {
      const content = [column.cell(row)].flat();
      const props = { className: kindOf(column), "data-label": column.title };
      if (column.header) return el("th", { scope: "row", role: "rowheader", ...props }, ...content);
      const cell = el("td", { role: "cell", ...props }, el("div", {}, ...content));
      // A card has no line for what is not there.
      cell.classList.toggle("none", ["–", ""].includes(cell.textContent ?? ""));
      return cell;
    }),
  );

/**
 * @template Row
 * @param {readonly Row[]} rows
 * @param {Column<Row>[]} columns
 * @param {Order} order
 */
function sorted(rows, columns, { name, down }) {
  const by = columns.find((column) => nameOf(column.title) === name)?.by;
  if (!by) return rows;
  const before = down ? 1 : -1;
  return [...rows].sort((a, b) => {
    const [one, two] = [by(a) ?? "", by(b) ?? ""];
    if (one === two) return 0;
    // What is not known comes last, whichever way.
    if (one === "" || two === "") return one === "" ? 1 : -1;
    return one < two ? before : -before;
  });
}

/**
 * The way to the other pages of a list. Back leads to the page before.
 * @param {{ next_cursor: string | null }} list
 * @param {string} order in words
 */
export function paging({ next_cursor: next }, order) {
  const cursor = here().query.get("cursor");
  return el(
    "p",
    { className: "paging" },
    cursor ? link(hrefHere({}), "First page") : undefined,
    next ? link(hrefHere({ cursor: next }), "Next page") : undefined,
    el("span", { className: "hint" }, order + (next || cursor ? " Sorting is of this page." : "")),
  );
}
