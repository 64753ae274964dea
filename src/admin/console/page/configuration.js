/** @import { Configuration, Tiers } from "./objects.d.ts" */
/** @import { Context, Made } from "./views.js" */
import { listPackages, listPrices, listTiers, readConfiguration } from "./api.js";
import { badge, code, el, heading, hint, note } from "./dom.js";
import { capitalized, count, endpointName } from "./format.js";
import { TIER_LIMITS } from "./limits.js";
import { table } from "./table.js";

/**
 * Tiers, prices, packages and the configuration in force, with what differs from the file and between gateways.
 * @param {Context} context
 * @returns {Promise<Made>}
 */
export async function showConfiguration({ again }) {
  const [tiers, prices, packages, configuration] = await Promise.all([
    listTiers(),
    listPrices(),
    listPackages(),
    readConfiguration(),
  ]);
  return {
    nodes: [
      heading("Configuration", again),
      ...differences(configuration),
      tiersTable(tiers),
      ...missingTiers(tiers),
      table(
        "Prices",
        [
          {
            title: "Endpoint",
            header: true,
            wrap: true,
            cell: (one) => endpointName(one.endpoint),
            by: (one) => one.endpoint,
          },
          { title: "Credits", wrap: true, cell: (one) => priceText(one.price) },
        ],
        prices.data,
        "There are none.",
        "prices-by",
      ),
      table(
        "Packages",
        [
          { title: "Package", header: true, cell: (one) => one.package, by: (one) => one.package },
          { title: "Credits", numeric: true, cell: (one) => count(one.credits), by: (one) => one.credits },
        ],
        packages.data,
        "There are none.",
        "packages-by",
      ),
      gatewaysTable(configuration),
      el(
        "details",
        {},
        el("summary", {}, "All settings in force, without secrets"),
        el("pre", { tabIndex: 0 }, JSON.stringify(configuration.config, undefined, 2)),
      ),
    ],
  };
}

/** @param {Tiers} tiers */
const tiersTable = (tiers) =>
  table(
    "Tiers",
    [
      { title: "Tier", header: true, cell: (one) => one.tier, by: (one) => one.tier },
      ...TIER_LIMITS.map(({ name, short }) => ({
        title: capitalized(short),
        numeric: true,
        cell: (/** @type {Tiers["data"][number]} */ one) => count(one[name]),
        by: (/** @type {Tiers["data"][number]} */ one) => one[name],
      })),
      { title: "Keys", numeric: true, cell: (one) => count(one.keys), by: (one) => one.keys },
      {
        title: "New keys",
        cell: (one) => (one.deprecated ? "no: deprecated" : "yes"),
        by: (one) => String(one.deprecated),
      },
    ],
    tiers.data,
    "There are none.",
    "tiers-by",
  );

/** @param {Tiers} tiers */
function missingTiers({ missing }) {
  if (missing === null || missing.length === 0) return [];
  return [
    note("Keys use tiers that the configuration does not name. They have the limits of standard."),
    table(
      "Tiers in use that are not in the configuration",
      [
        { title: "Tier", header: true, wrap: true, cell: (one) => one.tier, by: (one) => one.tier },
        { title: "Keys", numeric: true, cell: (one) => count(one.keys), by: (one) => one.keys },
      ],
      missing,
      "",
      "missing-by",
    ),
  ];
}

/** @param {number | object} price credits, or credits by what is asked for, as the price file has it */
function priceText(price) {
  if (typeof price === "number") return count(price);
  return Object.entries(price).flatMap(([by, prices]) => [
    el("div", { className: "hint" }, by.replaceAll("_", " ")),
    ...leavesOf(prices).map((line) => el("div", {}, line)),
  ]);
}

/**
 * @param {unknown} prices
 * @param {string[]} path
 * @returns {string[]} such as `10, high: 330`
 */
function leavesOf(prices, path = []) {
  if (typeof prices !== "object" || prices === null) return [`${path.join(", ")}: ${prices}`];
  return Object.entries(prices).flatMap(([name, more]) => leavesOf(more, [...path, name]));
}

/** @param {Configuration} configuration */
function differences({ file }) {
  const waiting = file.awaiting_signal
    ? [note("The files have changed. This gateway reads them at SIGHUP (reload: signal).")]
    : [];
  if (file.problem)
    return [
      ...waiting,
      note(`The file cannot be used, and the settings before stay in force: ${file.problem}`),
    ];
  if (file.differs.length === 0) {
    return file.awaiting_signal
      ? waiting
      : [hint("This gateway's file and the settings in force are the same.")];
  }
  return [
    ...waiting,
    note("The files differ from what is in force."),
    table(
      "In force and in the file",
      [
        { title: "Setting", header: true, wrap: true, cell: (one) => code(one.path), by: (one) => one.path },
        { title: "In force", wrap: true, cell: (one) => code(JSON.stringify(one.in_force) ?? "none") },
        { title: "In the file", wrap: true, cell: (one) => code(JSON.stringify(one.in_file) ?? "none") },
        {
          title: "Takes effect at",
          cell: (one) => (one.needs_restart ? "a restart" : "SIGHUP"),
          by: (one) => String(one.needs_restart),
        },
      ],
      file.differs,
      "",
      "differs-by",
    ),
  ];
}

/** @param {Configuration} configuration */
function gatewaysTable({ gateways, config_hash }) {
  return table(
    "Gateways by the hash of their settings",
    [
      { title: "Gateway", header: true, cell: (one) => code(one.gateway_id) },
      { title: "Host", cell: (one) => one.host, by: (one) => one.host },
      { title: "Hash", wrap: true, cell: (one) => code(one.config_hash), by: (one) => one.config_hash },
      {
        title: "Settings",
        cell: (one) => badge(one.config_hash === config_hash ? "in use" : "differs"),
      },
    ],
    gateways,
    "No gateway has named itself yet.",
    "gateways-by",
  );
}
