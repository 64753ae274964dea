import { el, failureNote } from "./dom.js";
import { here, hrefHere } from "./location.js";

/**
 * @typedef {object} Filter
 * @property {string} name in the address
 * @property {string} label
 * @property {"search" | "date"} [type] a date is a UTC day
 * @property {readonly (readonly [value: string, label: string])[]} [options] of a choice
 */

/**
 * A form whose values stand in the address; to show them is a step that Back undoes.
 * @param {Filter[]} filters
 * @param {...Node} more beside its button
 */
export function filterForm(filters, ...more) {
  const { query } = here();
  const controls = filters.map(({ name, label, type = "search", options }) => {
    const id = `filter-${name}`;
    const value = query.get(name) ?? "";
    const control = options
      ? el(
          "select",
          { id, name },
          ...options.map(([of, text]) => el("option", { value: of, selected: of === value }, text)),
        )
      : el("input", { id, name, type, value, maxLength: 200, spellcheck: false, autocomplete: "off" });
    return el("span", { className: "filter-field" }, el("label", { htmlFor: id }, label), control);
  });
  const form = el(
    "form",
    { className: "filter" },
    ...controls,
    el("button", { type: "submit" }, "Show"),
    ...more,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    /** @type {Record<string, string>} */
    const values = {};
    for (const { name } of filters) values[name] = String(new FormData(form).get(name) ?? "").trim();
    const href = hrefHere(values);
    // Filters that did not change are read again.
    if (href === location.hash) dispatchEvent(new Event("hashchange"));
    else location.hash = href;
  });
  return el("search", {}, form);
}

/**
 * What a filter lets through, below its form. Where it cannot be read, the form stays beside the reason, and may be mended.
 * @param {HTMLElement} form
 * @param {() => Promise<Node[]>} read
 */
export async function filtered(form, read) {
  try {
    return [form, ...(await read())];
  } catch (error) {
    return [form, failureNote(error)];
  }
}
