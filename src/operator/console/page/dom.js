/** @import { MayLackPartitions } from "../answers.ts" */
/** @typedef {Node | string | number | undefined | null} Child */

/**
 * Makes an element. Text is only ever set as text: what comes from the store is never markup.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, unknown>} [props] properties; names with a dash and `role`, `scope` go in as attributes
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function el(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined) continue;
    if (name.includes("-") || name === "role" || name === "scope") element.setAttribute(name, String(value));
    else Reflect.set(element, name, value);
  }
  for (const child of children) {
    if (child !== undefined && child !== null) element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/**
 * An element that is there.
 * @template {HTMLElement} [Kind=HTMLElement]
 * @param {string} id
 * @param {new () => Kind} [kind]
 * @returns {Kind}
 */
export function byId(id, kind) {
  const element = document.getElementById(id);
  if (!(element instanceof (kind ?? HTMLElement))) throw new Error(`the page has no such #${id}`);
  return /** @type {Kind} */ (element);
}

/** @template Row @typedef {{ title: string, numeric?: boolean, header?: boolean, wrap?: boolean, action?: boolean, cell: (row: Row) => Child | Child[] }} Column */

/**
 * A table with a caption, in a box of its own that scrolls sideways where the window is narrow.
 * @template Row
 * @param {string} caption
 * @param {Column<Row>[]} columns the one marked `header` names the row
 * @param {Row[]} rows
 * @param {string} empty what to say when there are none
 */
export function table(caption, columns, rows, empty) {
  const kind = (/** @type {Column<Row>} */ { numeric, wrap, action }) =>
    numeric ? "number" : wrap ? "wrap" : action ? "action" : undefined;
  const head = el(
    "tr",
    {},
    ...columns.map((column) => el("th", { scope: "col", className: kind(column) }, column.title)),
  );
  const body = rows.map((row) =>
    el(
      "tr",
      {},
      ...columns.map((column) => {
        const content = [column.cell(row)].flat();
        if (column.header) return el("th", { scope: "row", className: kind(column) }, ...content);
        return el("td", { className: kind(column) }, ...content);
      }),
    ),
  );
  if (rows.length === 0)
    body.push(el("tr", {}, el("td", { colSpan: columns.length, className: "empty" }, empty)));
  return el(
    "div",
    { className: "scroll", tabIndex: 0, role: "region", "aria-label": caption },
    el("table", {}, el("caption", {}, caption), el("thead", {}, head), el("tbody", {}, ...body)),
  );
}

/** @param {string} text */
export const hint = (text) => el("p", { className: "hint" }, text);

/**
 * Says which partitions what is shown does not cover; nothing if it covers all.
 * @param {MayLackPartitions} answer
 */
export const unreadNotes = ({ unread }) =>
  unread
    ? [
        el(
          "p",
          { className: "note" },
          `${count(unread.partitions.length)} partitions could not be read, and nothing of them is shown: ${unread.why}`,
        ),
      ]
    : [];

/**
 * A button that does something.
 * @param {string} label
 * @param {() => void} press
 * @param {Record<string, unknown>} [props]
 */
export function button(label, press, props = {}) {
  const made = el("button", { type: "button", ...props }, label);
  made.addEventListener("click", press);
  return made;
}

/** @param {string} id an account's */
export const accountLink = (id) => el("a", { href: `#account/${encodeURIComponent(id)}` }, id);

/** @param {string} text an id or another name of the machine's */
export const code = (text) => el("code", {}, text);

/**
 * A number against its limit, to look at and to read.
 * @param {number | undefined} used
 * @param {number | undefined} limit
 * @param {string} what
 */
export function usage(used, limit, what) {
  if (used === undefined || limit === undefined) return "–";
  const share = limit > 0 ? used / limit : 1;
  const className = `use ${share >= 1 ? "full" : share >= 0.8 ? "near" : ""}`;
  return el(
    "span",
    { className },
    `${count(used)} / ${count(limit)} `,
    el("meter", {
      max: 1,
      low: 0.8,
      high: 0.999,
      optimum: 0,
      value: Math.min(1, share),
      "aria-label": `${what}: share of the limit`,
    }),
  );
}

/**
 * A number with a bar beside it, as long as its share of the largest.
 * @param {number} number
 * @param {number} most
 */
export function bar(number, most) {
  const length = el("i", { className: "bar-length" });
  length.style.width = `${most > 0 ? (100 * number) / most : 0}%`;
  return el(
    "span",
    { className: "use" },
    count(number),
    el("span", { className: "bar-box", "aria-hidden": "true" }, length),
  );
}

const whole = new Intl.NumberFormat("en");

/** @param {number} number */
export const count = (number) => whole.format(number);

/** @param {number | null | undefined} perSecond */
export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return "–";
  return perSecond === 0 || perSecond >= 100
    ? perSecond.toFixed(0)
    : perSecond.toFixed(perSecond >= 10 ? 1 : 2);
}

/** @param {number | null | undefined} seconds how long something took */
export function took(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds >= 1) return `${seconds.toFixed(seconds >= 10 ? 0 : 1)} s`;
  const ms = seconds * 1000;
  return `${ms >= 10 ? ms.toFixed(0) : ms.toFixed(1)} ms`;
}

/** @param {number} seconds an age, in its two largest units */
export function age(seconds) {
  const [minute, hour, day] = [60, 3600, 86_400];
  if (seconds >= day) return `${Math.floor(seconds / day)} d ${Math.floor((seconds % day) / hour)} h`;
  if (seconds >= hour) return `${Math.floor(seconds / hour)} h ${Math.floor((seconds % hour) / minute)} min`;
  if (seconds >= minute) return `${Math.floor(seconds / minute)} min ${Math.floor(seconds % minute)} s`;
  return `${Math.floor(seconds)} s`;
}

/** @param {string | undefined} iso a moment, to the second, in UTC as the log has it */
export function moment(iso) {
  if (!iso) return "–";
  return el("time", { dateTime: iso }, `${iso.slice(0, 10)} ${iso.slice(11, 19)}`);
}

/**
 * The heading of a view, with a button that reads it anew.
 * @param {string} title
 * @param {() => void} [refresh]
 */
export function heading(title, refresh) {
  const made = el("h2", { id: "view-title", tabIndex: -1 }, title);
  if (!refresh) return made;
  const now = new Date().toISOString().slice(11, 19);
  return el(
    "div",
    { className: "heading" },
    made,
    el("p", { className: "asof" }, `as of ${now} UTC`),
    button("Read again", refresh, { className: "quiet" }),
  );
}
