import { html, tile, usage } from "./dom.js";
import { capitalized } from "./format.js";
import { CAPS, TIER_LIMITS } from "./limits.js";
import { optionList } from "./table.js";

/**
 * A field of a form.
 * @typedef {object} Field
 * @property {string} name
 * @property {string} label
 * @property {string} [hint]
 * @property {"text" | "lines" | "number" | "moment" | "select" | "checks"} [type] a moment is in UTC
 * @property {string} [value] what it begins with; of checks those that are ticked, by commas
 * @property {readonly (readonly [value: string, label: string])[]} [options] of a select or checks
 * @property {(value: string, values?: Record<string, string>) => string | undefined} [check] what is wrong with it, in words; the form's other values beside it
 */

/** @param {Field} field */
export function fieldOf(field) {
  const { name, label, hint, type } = field;
  const id = `field-${name}`;
  const hinted = hint && html`<p id=${`${id}-hint`} class="hint">${hint}</p>`;
  if (type === "checks")
    return html`<fieldset class="field"><legend>${label}</legend>${hinted}<div class="checks">${checks(field, id)}</div></fieldset>`;
  return html`<div class="field"><label for=${id}>${label}</label>${controlOf(field, id)}${hinted}</div>`;
}

/** The first value is the default, so that a form that is drawn anew keeps what was typed. @param {Field} field @param {string} id */
function controlOf({ name, type, value = "", hint, options = [] }, id) {
  const props = { id, name, "aria-describedby": hint ? `${id}-hint dialog-error` : "dialog-error" };
  if (type === "select") return html`<select ...${props}>${optionList(options, value)}</select>`;
  const text = { ...props, autocomplete: "off", spellcheck: false, defaultValue: value };
  if (type === "lines") return html`<textarea ...${text} rows="5" />`;
  // Without a maxlength: a browser cuts off what is pasted beyond it and says nothing. The gateway refuses it in words.
  return html`<input ...${text} type="text" placeholder=${type === "moment" ? MOMENT_EXAMPLE : undefined}
    inputmode=${type === "number" ? "numeric" : "text"} />`;
}

/** @param {Field} field @param {string} id */
const checks = ({ name, value = "", options = [] }, id) =>
  options.map(([of, text], at) => {
    const own = at === 0 ? id : `${id}-${at}`;
    return html`<label class="check" for=${own}><input id=${own} name=${name} type="checkbox" value=${of}
      defaultChecked=${value.split(",").includes(of)} /> ${text}</label>`;
  });

const MOMENT_EXAMPLE = "2026-12-31 12:00";

/** @param {string} value of a field of type moment */
export const momentProblem = (value) =>
  value === "" || (/^\d{4}-\d\d-\d\d[ T]\d\d:\d\d$/.test(value) && isMoment(momentOrNull(value)))
    ? undefined
    : `must have a date and a time such as ${MOMENT_EXAMPLE}, or be empty`;

/** Not for 30 February. @param {string | null} iso */
const isMoment = (iso) =>
  iso !== null &&
  !Number.isNaN(Date.parse(iso)) &&
  new Date(iso).toISOString().slice(0, 10) === iso.slice(0, 10);

/** Values by name; of checks those that are ticked, by commas. @param {HTMLFormElement} form */
export function valuesOf(form) {
  /** @type {Record<string, string>} */
  const values = {};
  const data = new FormData(form);
  for (const name of new Set(data.keys())) {
    values[name] = data
      .getAll(name)
      .map((value) => String(value).trim())
      .join(",");
  }
  return values;
}

/** @param {string} value */
const wholeOrEmpty = (value) =>
  /^(\d{1,15})?$/.test(value) ? undefined : "must be a whole number, or empty for none";

/** @param {string} value */
export const credits = (value) =>
  /^[1-9]\d{0,14}$/.test(value) ? undefined : "must be a whole number, at least 1";

/** @param {string} value */
export const creditsUpOrDown = (value) =>
  /^-?[1-9]\d{0,14}$/.test(value) ? undefined : "must be a whole number other than 0, such as 500 or -500";

/** @param {string} value */
const reference = (value) =>
  /^[\x20-\x7e]{1,200}$/.test(value) ? undefined : "must have 1 to 200 printable ASCII characters";

/** @param {string} value */
export const required = (value) => (value ? undefined : "is missing");

/** Null where a field is empty: in a change it removes what is there. @param {string | undefined} value */
const numberOrNull = (value) => (value ? Number(value) : null);

/** @param {string | undefined} value */
export const textOrNull = (value) => value || null;

/** @param {string | undefined} value of a field of type moment */
export const momentOrNull = (value) => (value ? `${value.slice(0, 16).replace(" ", "T")}:00Z` : null);

/** @param {string} value */
export const jsonObjectOrEmpty = (value) => {
  if (!value) return undefined;
  try {
    const parsed = JSON.parse(value);
    return isObject(parsed) ? undefined : 'must be a JSON object such as {"crm_id": "42"}';
  } catch (error) {
    return `is not JSON: ${error instanceof Error ? error.message : "it cannot be read"}`;
  }
};

/** @param {unknown} value */
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** @param {string | null | undefined} iso @returns {string} as a field of type moment has it */
export const momentValue = (iso) => iso?.slice(0, 16).replace("T", " ") ?? "";

/** An object without what is empty: in a creation that means the default. @param {Record<string, unknown>} fields */
export const given = (fields) =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null && value !== undefined));

/** Columns with what is used of each limit. @template Row @param {(row: Row) => Partial<Use> | undefined} useOf @returns {Column<Row>[]} */
export const useColumns = (useOf) =>
  TIER_LIMITS.map(({ name, used, title }) => ({
    title,
    numeric: true,
    cell: (row) => usage(useOf(row)?.[used], useOf(row)?.[name], title.toLowerCase()),
    of: (row) => useOf(row)?.[used],
  }));

/** @param {{ name: string, used: string, title: string }} limit @param {object | undefined} of has the limit and its use @param {string} what it counts @returns {Content} */
export function limitTile({ name, used, title }, of, what) {
  const values = /** @type {Record<string, number | null | undefined>} */ (of ?? {});
  return tile(title, usage(values[used], values[name], title.toLowerCase()), what);
}

/** @param {Limits | undefined} limits @param {string} none what an empty one means @returns {Field[]} */
export const limitFields = (limits, none) =>
  TIER_LIMITS.map(({ name, short }) =>
    numberField(name, capitalized(short), limits?.[name], `Empty: ${none}.`),
  );

/** @param {Partial<Key>} key @returns {Field[]} */
export const capFields = (key) =>
  CAPS.map(({ name, short }) =>
    numberField(name, `Cap: ${short}`, key[name], "Held and spent together never exceed it. Empty: no cap."),
  );

/** @param {string} name @param {string} label @param {number | null | undefined} value @param {string} hint @returns {Field} */
const numberField = (name, label, value, hint) => ({
  name,
  label,
  hint,
  type: "number",
  value: String(value ?? ""),
  check: wholeOrEmpty,
});

/** @param {readonly { name: string }[]} limits @returns {(values: Record<string, string>) => Record<string, number | null>} */
const numbersOf = (limits) => (values) =>
  Object.fromEntries(limits.map(({ name }) => [name, numberOrNull(values[name])]));
export const limitsOf = numbersOf(TIER_LIMITS);
export const capsOf = numbersOf(CAPS);

/** @param {string | null | undefined} value @param {string} example @returns {Field} */
export const labelField = (value, example = "the customer's name") => ({
  name: "label",
  label: "Label",
  hint: `For people, such as ${example}. Empty: none.`,
  value: value ?? "",
});

/** @returns {Field} */
export const reasonField = (hint = "Why; it stands in the ledger.") => ({
  name: "reason",
  label: "Reason",
  hint,
  check: required,
});

/** @param {string} hint @param {string} [value] @returns {Field} */
export const referenceField = (hint, value = "") => ({
  name: "reference",
  label: "Reference",
  hint,
  value,
  check: reference,
});

/** How long what is replaced goes on. @param {string} label @param {string} value @returns {Field} */
export const overlapField = (label, value) => ({
  name: "overlap",
  label,
  type: "select",
  value,
  options: [
    ["0s", "0: it ends at once"],
    ["1h", "1 hour"],
    ["24h", "24 hours"],
    ["168h", "7 days"],
  ],
});
