/** @import { Limits, Use } from "./objects.d.ts" */
/** @import { Field } from "./fields.js" */
/** @import { Column } from "./table.js" */
import { usage } from "./dom.js";
import { numberOrNull, wholeOrEmpty } from "./fields.js";

/** Limits that a tier, a key and an account have, as the views name them. */
export const TIER_LIMITS = /** @type {const} */ ([
  {
    name: "rate_limit",
    used: "window_used",
    title: "Last 60 s",
    unit: "requests",
    of: "requests per 60 s",
    label: "Requests per 60 s",
  },
  {
    name: "max_concurrent",
    used: "active",
    title: "Slots",
    unit: "tasks at a time",
    of: "slots",
    label: "Slots: tasks at a time",
  },
  {
    name: "daily_limit",
    used: "day_count",
    title: "Today",
    unit: "requests",
    of: "requests per day",
    label: "Requests per UTC day",
  },
]);

/**
 * Columns with what is used of each limit.
 * @template Row
 * @param {(row: Row) => Use | undefined} useOf
 * @returns {Column<Row>[]}
 */
export const useColumns = (useOf) =>
  TIER_LIMITS.map(({ name, used, title }) => ({
    title,
    numeric: true,
    cell: (row) => usage(useOf(row)?.[used], useOf(row)?.[name], title.toLowerCase()),
    of: (row) => useOf(row)?.[used],
  }));

/**
 * @param {Limits | undefined} limits
 * @param {string} none what an empty one means
 * @returns {Field[]}
 */
export const limitFields = (limits, none) =>
  TIER_LIMITS.map(({ name, label }) => ({
    name,
    label,
    hint: `Empty: ${none}.`,
    type: "number",
    value: String(limits?.[name] ?? ""),
    check: wholeOrEmpty,
  }));

/** @param {Record<string, string>} values */
export const limitsOf = (values) =>
  Object.fromEntries(TIER_LIMITS.map(({ name }) => [name, numberOrNull(values[name])]));

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
