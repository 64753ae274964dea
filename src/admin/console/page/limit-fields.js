/** @import { Key, Limits, Use } from "./objects.d.ts" */
/** @import { Field } from "./fields.js" */
import { usage } from "./dom.js";
import { numberOrNull, wholeOrEmpty } from "./fields.js";
import { capitalized } from "./format.js";
import { CAPS, TIER_LIMITS } from "./limits.js";

/**
 * @param {Limits | undefined} limits
 * @param {string} none what an empty one means
 * @returns {Field[]}
 */
export const limitFields = (limits, none) =>
  TIER_LIMITS.map(({ name, short }) =>
    numberField(name, capitalized(short), limits?.[name], `Empty: ${none}.`),
  );

/** @param {Partial<Key>} key @returns {Field[]} */
export const capFields = (key) =>
  CAPS.map(({ name, short }) =>
    numberField(name, `Cap: ${short}`, key[name], "Held and spent together never exceed it. Empty: no cap."),
  );

/**
 * @param {string} name
 * @param {string} label
 * @param {number | null | undefined} value
 * @param {string} hint
 * @returns {Field}
 */
const numberField = (name, label, value, hint) => ({
  ...{ name, label, hint },
  type: "number",
  value: value === null || value === undefined ? "" : String(value),
  check: wholeOrEmpty,
});

/**
 * @param {readonly { name: string }[]} limits
 * @returns {(values: Record<string, string>) => Record<string, number | null>}
 */
const numbersOf = (limits) => (values) =>
  Object.fromEntries(limits.map(({ name }) => [name, numberOrNull(values[name])]));
export const limitsOf = numbersOf(TIER_LIMITS);
export const capsOf = numbersOf(CAPS);

/**
 * @param {{ name: string, used: string, title: string, short: string }} limit
 * @param {object | undefined} of has the limit and what is used of it
 * @returns {[string, Node | string, string]}
 */
export function limitTile({ name, used, title, short }, of) {
  const values = /** @type {Record<string, number | null | undefined>} */ (of ?? {});
  return [title, usage(values[used], values[name], title.toLowerCase()), short];
}

/**
 * Columns of what is used of each limit.
 * @template Row
 * @param {(row: Row) => Partial<Use> | undefined} useOf
 */
export const useColumns = (useOf) =>
  TIER_LIMITS.map(({ name, used, title }) => ({
    title,
    numeric: true,
    cell: (/** @type {Row} */ row) => usage(useOf(row)?.[used], useOf(row)?.[name], title.toLowerCase()),
    by: (/** @type {Row} */ row) => useOf(row)?.[used],
  }));

/**
 * @param {string | null | undefined} value
 * @param {string} example
 * @returns {Field}
 */
export const labelField = (value, example = "the customer's name") => ({
  name: "label",
  label: "Label",
  hint: `For people, such as ${example}. Empty: none.`,
  value: value ?? "",
});
