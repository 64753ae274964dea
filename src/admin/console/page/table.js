/** @import { Content } from "./dom.js" */
import { Component, failureNote, h, html, link } from "./dom.js";
import { here, hrefHere, noteHere } from "./location.js";

/** @typedef {string | number | boolean | null | undefined} Value */

/**
 * A column shows a value, by which it can be sorted, or else a cell of its own.
 * @template Row
 * @typedef {object} Column
 * @property {string} title
 * @property {(row: Row) => Value} [of]
 * @property {(value: never) => Content} [as] how the value is shown; it takes what `of` gives
 * @property {(row: Row) => Content} [cell]
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
    return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}>
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

/** @template Row @param {Column<Row>} column @param {Order} order @param {(name: string) => void} sortBy */
function titleOf(column, order, sortBy) {
  const { title, of } = column;
  const name = nameOf(title);
  const way = of && order.name === name ? (order.down ? "descending" : "ascending") : undefined;
  const arrow = way && html`<span aria-hidden="true">${order.down ? " ▼" : " ▲"}</span>`;
  return html`<th scope="col" role="columnheader" class=${kindOf(column)} aria-sort=${way}>${
    of
      ? html`<button type="button" class="sort" onClick=${() => sortBy(name)}>${title}${arrow}</button>`
      : title
  }</th>`;
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
  if (header) return html`<th scope="row" role="rowheader" class=${kind} data-label=${title}>${content}</th>`;
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

/** Back leads to the page before. @param {{ next_cursor: string | null }} list @param {string} order in words */
export function paging({ next_cursor: next }, order) {
  const cursor = here().query.get("cursor");
  return html`<p class="paging">
    ${cursor && link(hrefHere({}), "First page")}
    ${next && link(hrefHere({ cursor: next }), "Next page")}
    <span class="hint">${order + (next || cursor ? " Sorting is of this page." : "")}</span>
  </p>`;
}

/**
 * @typedef {object} Filter
 * @property {string} name in the address
 * @property {string} label
 * @property {"search" | "date"} [type] a date is a UTC day
 * @property {readonly (readonly [value: string, label: string])[]} [options] of a choice
 */

/**
 * A form whose values stand in the address, so that Back undoes a filter, and below it what the filter lets through. Where
 * that cannot be read, the form stays beside the reason, and may be mended.
 * @param {Filter[]} filters
 * @param {() => Promise<Content>} read
 * @param {Content} [more] beside the form's button
 */
export async function filtered(filters, read, more) {
  const { query } = here();
  const form = html`<search><form class="filter" onSubmit=${showFiltered}>
    ${filters.map((filter) => filterField(filter, query.get(filter.name) ?? ""))}
    <button type="submit">Show</button>${more}
  </form></search>`;
  return [form, await read().catch(failureNote)];
}

/** @param {Filter} filter @param {string} value */
function filterField({ name, label, type = "search", options }, value) {
  const id = `filter-${name}`;
  const control = options
    ? html`<select id=${id} name=${name}>${optionList(options, value)}</select>`
    : html`<input id=${id} name=${name} type=${type} value=${value} maxlength="200" spellcheck=${false} autocomplete="off" />`;
  return html`<span class="filter-field"><label for=${id}>${label}</label>${control}</span>`;
}

/** @param {readonly (readonly [value: string, label: string])[]} options @param {string | undefined} value */
export const optionList = (options, value) =>
  options.map(([of, label]) => html`<option value=${of} defaultSelected=${of === value}>${label}</option>`);

/** @param {SubmitEvent & { currentTarget: HTMLFormElement }} event */
function showFiltered(event) {
  event.preventDefault();
  const given = [...new FormData(event.currentTarget)].map(([name, value]) => [name, String(value).trim()]);
  const href = hrefHere(Object.fromEntries(given));
  // Filters that did not change are read again.
  if (href === location.hash) dispatchEvent(new Event("hashchange"));
  else location.hash = href;
}
