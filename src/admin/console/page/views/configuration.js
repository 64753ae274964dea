import { badge, code, heading, hint, html, moment, note } from "../dom.js";
import { capitalized, count, endpointName } from "../format.js";
import { TIER_LIMITS } from "../limits.js";
import { viewRequests } from "../requests.js";
import { table } from "../table.js";

/** @param {Context} context @returns {Promise<Content>} */
export async function showConfiguration({ place, again }) {
  const asked = viewRequests.configuration(place);
  const [tiers, prices, packages, configuration] = await Promise.all([
    asked.tiers,
    asked.prices,
    asked.packages,
    asked.configuration,
  ]);
  return [
    heading("Configuration", again),
    differences(configuration),
    tiersTable(tiers),
    missingTiers(tiers),
    table(
      "Prices",
      [
        { title: "Endpoint", header: true, wrap: true, of: (one) => one.endpoint, as: endpointName },
        { title: "Price", wrap: true, cell: (one) => priceText(one.price) },
      ],
      prices.data,
      "There are none.",
      "prices-by",
    ),
    priceLists(configuration, prices.data),
    table(
      "Packages",
      [
        { title: "Package", header: true, of: (one) => one.package },
        { title: "Credits", numeric: true, of: (one) => one.credits, as: count },
        { title: "Price", of: (one) => (one.price === null ? "" : `${one.price} ${one.currency}`) },
      ],
      packages.data,
      "There are none.",
      "packages-by",
    ),
    settingsTable(configuration),
    html`<details><summary>All settings in force, without secrets</summary>
      <pre tabindex="0">${JSON.stringify(configuration.config, undefined, 2)}</pre></details>`,
  ];
}

/** @param {Tiers} tiers */
const tiersTable = (tiers) =>
  table(
    "Tiers",
    [
      { title: "Tier", header: true, of: (one) => one.tier },
      ...TIER_LIMITS.map(({ name, short }) => ({
        title: capitalized(short),
        numeric: true,
        of: (/** @type {Tiers["data"][number]} */ one) => one[name],
        as: count,
      })),
      { title: "Keys", numeric: true, of: (one) => one.keys, as: count },
      { title: "New keys", of: (one) => one.deprecated, as: (is) => (is ? "no: deprecated" : "yes") },
    ],
    tiers.data,
    "There are none.",
    "tiers-by",
  );

/** @param {Tiers} tiers */
function missingTiers({ missing }) {
  if (missing === null || missing.length === 0) return undefined;
  return [
    note("Keys use tiers that the configuration does not name. They have the limits of standard."),
    table(
      "Tiers in use that are not in the configuration",
      [
        { title: "Tier", header: true, wrap: true, of: (one) => one.tier },
        { title: "Keys", numeric: true, of: (one) => one.keys, as: count },
      ],
      missing,
      "",
      "missing-by",
    ),
  ];
}

/** Which list is in force, and what the later ones change. @param {Configuration} configuration @param {Price[]} prices in force */
function priceLists({ config }, prices) {
  const lists = Object.entries(/** @type {{ prices: Record<string, unknown> }} */ (config).prices).flatMap(
    ([name, list]) => {
      const [, file, from] = /^(.+) from (\S+)$/.exec(name) ?? [];
      return file && from
        ? [{ file, from, list: /** @type {Record<string, number | object>} */ (list) }]
        : [];
    },
  );
  const now = new Date().toISOString();
  const current = lists.findLast(({ from }) => from <= now);
  const next = lists.filter(({ from }) => from > now);
  if (!current) return undefined;
  const changes = (/** @type {Record<string, number | object>} */ list) =>
    prices
      .filter(({ endpoint, price }) => JSON.stringify(list[endpoint]) !== JSON.stringify(price))
      .map(({ endpoint }) => html`<div>${endpointName(endpoint)}: ${priceText(list[endpoint] ?? 0)}</div>`);
  return [
    hint([
      `In force is ${current.file}`,
      Date.parse(current.from) > 0 && [", since ", moment(current.from)],
      next.length === 0 ? ". No other one follows." : ".",
    ]),
    next.map(({ file, from, list }) => note([`${file} begins at `, moment(from), changes(list)])),
  ];
}

/** The parameters that a price depends on, with their units. @type {Record<string, (value: string) => string>} */
const UNITS = { duration: (value) => `${value} s`, n_frames: (value) => `${value} s in all` };

/** @param {number | object} price credits, or credits by what is asked for, as the price file has it */
function priceText(price) {
  if (typeof price === "number") return `${count(price)} credits`;
  return Object.entries(price).map(([by, prices]) =>
    pricesBy(by.replace(/^by_/, "").split("_and_"), prices).map((line) => html`<div>${line}</div>`),
  );
}

/** @param {string[]} names of what it depends on @param {unknown} prices @param {string[]} path @returns {string[]} such as `10 s, high: 330 credits` */
function pricesBy([name = "", ...names], prices, path = []) {
  if (typeof prices !== "object" || prices === null) return [`${path.join(", ")}: ${prices} credits`];
  const unit = UNITS[name] ?? String;
  return Object.entries(prices).flatMap(([value, more]) => pricesBy(names, more, [...path, unit(value)]));
}

/** @param {Configuration} configuration */
function differences({ file }) {
  const waiting =
    file.awaiting_signal &&
    note("The files have changed. This gateway reads them at SIGHUP (reload: signal).");
  if (file.problem)
    return [waiting, note(`The file cannot be used, and the settings before stay in force: ${file.problem}`)];
  if (file.differs.length === 0)
    return waiting || hint("This gateway's file and the settings in force are the same.");
  return [
    waiting,
    note("The files differ from what is in force."),
    table(
      "In force and in the file",
      [
        { title: "Setting", header: true, wrap: true, of: (one) => one.path, as: code },
        { title: "In force", wrap: true, cell: (one) => code(JSON.stringify(one.in_force) ?? "none") },
        { title: "In the file", wrap: true, cell: (one) => code(JSON.stringify(one.in_file) ?? "none") },
        {
          title: "Takes effect at",
          of: (one) => one.needs_restart,
          as: (is) => (is ? "a restart" : "SIGHUP"),
        },
      ],
      file.differs,
      "",
      "differs-by",
    ),
  ];
}

/** @param {Configuration} configuration */
const settingsTable = ({ gateways, config_hash }) =>
  table(
    "Gateways by the hash of their settings",
    [
      { title: "Gateway", header: true, cell: (one) => code(one.gateway_id) },
      { title: "Host", of: (one) => one.host },
      { title: "Hash", wrap: true, of: (one) => one.config_hash, as: code },
      { title: "Settings", cell: (one) => badge(one.config_hash === config_hash ? "in use" : "differs") },
    ],
    gateways,
    "No gateway has named itself yet.",
    "gateways-by",
  );
