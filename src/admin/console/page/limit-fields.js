/** @import { Limits } from "./objects.d.ts" */
/** @import { Field } from "./fields.js" */
import { numberOrNull, wholeOrEmpty } from "./fields.js";

/**
 * @param {Limits | undefined} limits
 * @param {string} none what an empty one means
 * @returns {Field[]}
 */
export const limitFields = (limits, none) => [
  limitField("rate_limit", "Requests per 60 s", limits?.rate_limit, none),
  limitField("max_concurrent", "Slots: tasks at a time", limits?.max_concurrent, none),
  limitField("daily_limit", "Requests per UTC day", limits?.daily_limit, none),
];

/**
 * @param {string} name
 * @param {string} label
 * @param {number | null | undefined} value
 * @param {string} none
 * @returns {Field}
 */
const limitField = (name, label, value, none) => ({
  name,
  label,
  hint: `Empty: ${none}.`,
  type: "number",
  value: value === null || value === undefined ? "" : String(value),
  check: wholeOrEmpty,
});

/** @param {Record<string, string>} values */
export const limitsOf = ({ rate_limit, max_concurrent, daily_limit }) => ({
  rate_limit: numberOrNull(rate_limit),
  max_concurrent: numberOrNull(max_concurrent),
  daily_limit: numberOrNull(daily_limit),
});

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
