import {
  ApiError,
  isKnown,
  listAccounts,
  listAudit,
  listDeliveries,
  listKeys,
  listOpenRequests,
  listPackages,
  listPrices,
  listRefusals,
  listRefusalsOfKey,
  listRefusedToday,
  listSales,
  listTasks,
  listTiers,
  listTimeline,
  listTokens,
  listTopAccounts,
  listTopKeys,
  listTransactions,
  listTransactionsOfTask,
  listWebhooks,
  may,
  mayOfAll,
  ownAccounts,
  readAccount,
  readAccountIfMay,
  readConfiguration,
  readHealth,
  readKey,
  readLive,
  readOverview,
  readRunbook,
  readTask,
  readTotalStatement,
  readUsage,
  readUse,
  readWebhook,
  search,
  token,
} from "./api.js";
import { here, pageOf } from "./location.js";

/** No sample is later: the gateway is asked for without its samples. */
export const LATER_THAN_ALL_MS = 1e14;
export const DAY_SECONDS = 86_400;
const OPEN_SECONDS = 600;
/** In place of an endpoint: the addresses that requests name. */
export const CALLBACK = "callback";

/** @param {number} seconds Unix @returns {string} its UTC day */
export const dateOf = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 10);

/** @returns {string} a UTC day */
export const day = (daysAgo = 0) => dateOf(Date.now() / 1000 - daysAgo * DAY_SECONDS);

/** Also in a header or between quotes, as a customer sends it. @param {string} q what is searched for */
export const isSecret = (q) => /(^|\W)(sk|tgm)_/.test(q);

export const SECRET_SEARCHED =
  "This is a secret and has no place here. Look for a key by its id, which begins with key_.";

/** Loaded once, with the first view that has a plot. */
export const loadPlots = () => import("./uplot.js");

/** Views of the page itself, and parts of an account; the others are in a file of their own. */
const IN_THE_PAGE = ["overview", "accounts", "usage", "timeline", "key", "keys"];

/** It is loaded ahead, and runs once the page is there, whose scope it shares. */
function expectMore() {
  const link = document.createElement("link");
  link.rel = "modulepreload";
  link.href = "./more.js";
  document.head.append(link);
}

/** Answers that were asked for while the rest of the page was on its way. @type {Map<unknown, object>} */
export const begun = new Map();
const begunWith = token.get();
addEventListener("hashchange", () => begun.clear());

/**
 * Asks the gateway, or takes what it was asked for ahead. What fails is told by whoever waits for it.
 * @template {object} Answers @param {(place: Place) => Answers} send
 */
function ahead(send) {
  /** @param {Place} place @returns {Answers} */
  const request = (place) => {
    const before = token.get() === begunWith ? begun.get(request) : undefined;
    begun.delete(request);
    if (before) return /** @type {Answers} */ (before);
    const answers = send(place);
    for (const one of Object.values(answers)) if (one instanceof Promise) one.catch(() => undefined);
    return answers;
  };
  return request;
}

/** Asks if the gateway is ready; nothing for a token that may not read it. */
export const readinessRequest = ahead(() => ({
  live: mayOfAll("usage:read") ? readLive(LATER_THAN_ALL_MS) : undefined,
}));

/** The requests of each view, by its name in the address. */
export const viewRequests = {
  overview: ahead(() => ({
    // The largest begins first.
    plots: loadPlots(),
    money: readOverview(),
    runningOut: may("accounts:read") ? listAccounts({ sort: "days_left", limit: 5 }) : undefined,
    health: readHealth(),
    samples: readLive(0),
  })),
  accounts: ahead(({ query }) => ({
    page: listAccounts({
      ...pageOf(query, ["prefix", "label", "status", "balance_below"]),
      ...metadataFilter(query),
      sort: query.get("order") ?? "",
    }),
  })),
  account: ahead((place) => ({
    account: readAccount(place.args[0] ?? ""),
    use: readUse(place.args[0] ?? "", partOf(place) === "usage" ? keysPage(place) : {}),
  })),
  key: ahead(({ args: [account = "", id = ""], query }) => ({
    key: readKey(account, id),
    refusals: may("usage:read")
      ? listRefusalsOfKey(account, id, {
          ...pageOf(query, ["outcome", "request_id"]),
          from: timeOfText(query.get("from") ?? "", "start"),
          to: timeOfText(query.get("to") ?? "", "end"),
        })
      : undefined,
    account: readAccountIfMay(account),
    use: may("accounts:read") ? readUse(account, { key_id: id }) : undefined,
    usage: may("usage:read")
      ? readUsage(account, { from: day(6), group_by: "day,key", key_id: id })
      : undefined,
  })),
  webhook: ahead(({ args: [account = "", id = ""], query }) => ({
    endpoint: id === CALLBACK ? undefined : readWebhook(account, id),
    deliveries: listDeliveries({ account_id: account, id }, pageOf(query, ["status"])),
  })),
  tasks: ahead(({ query }) => {
    const seconds = Number(query.get("older") || OPEN_SECONDS);
    return { seconds, open: listOpenRequests(seconds) };
  }),
  task: ahead(({ args: [id = ""] }) => ({
    task: readTask(id),
    entries: may("credits:read") ? listTransactionsOfTask(id) : undefined,
  })),
  top: ahead(({ query }) => {
    const [by, from] = [query.get("by") ?? "spend", query.get("from") ?? day(6)];
    return { by, from, page: listTopAccounts({ by, from, to: query.get("to") ?? "", limit: 50 }) };
  }),
  sales: ahead(({ query }) => {
    const month = query.get("month") || day().slice(0, 7);
    return { month, sales: listSales(month), total: readTotalStatement(month) };
  }),
  keys: ahead(() => ({
    use: listTopKeys(),
    refused: may("usage:read") ? listRefusedToday() : undefined,
  })),
  configuration: ahead(() => ({
    tiers: listTiers(),
    prices: listPrices(),
    packages: listPackages(),
    configuration: readConfiguration(),
  })),
  /** A token for some accounts reads those of one at a time. */
  audit: ahead(({ query }) => ({
    page:
      ownAccounts() === null || query.get("account_id")
        ? listAudit(pageOf(query, ["account_id", "by", "action", "from", "to", "audit_id"]))
        : undefined,
  })),
  tokens: ahead(({ query }) => ({ page: listTokens(pageOf(query, ["token_id"])) })),
  runbook: ahead(({ args: [page = ""] }) => ({ text: readRunbook(page) })),
  search: ahead(({ query }) => {
    const q = query.get("q") ?? "";
    return { q, found: q && !isSecret(q) ? search(q) : undefined };
  }),
};

/** @param {URLSearchParams} query with `metadata` as name=value */
function metadataFilter(query) {
  const text = query.get("metadata") ?? "";
  if (text === "") return {};
  const [, name, value] = /^([^=]+)=(.*)$/.exec(text) ?? [];
  if (name === undefined) throw new ApiError(400, "metadata is asked for as name=value, such as plan=pro");
  return { [`metadata.${name}`]: value };
}

/** A time as a row has it, or to the minute, as the API takes it; without a day it is of today. @param {string} text @param {"start" | "end"} edge of the second or minute: the API's `to` is not included */
function timeOfText(text, edge) {
  const [, date = day(), time, seconds] = /^(?:(\d{4}-\d\d-\d\d)[ T])?(\d\d:\d\d)(:\d\d)?$/.exec(text) ?? [];
  if (time === undefined) return text;
  const start = `${date}T${time}${seconds ?? ":00"}Z`;
  const startMs = Date.parse(start);
  // The gateway refuses what is no time, such as 30 February.
  const isTime = !Number.isNaN(startMs) && new Date(startMs).toISOString().startsWith(date);
  if (edge === "start" || !isTime) return start;
  return new Date(startMs + (seconds ? 1000 : 60_000)).toISOString();
}

/** The page of keys that is shown, for the keys and for what is used of their limits. @param {Place} place */
const keysPage = ({ query }) => pageOf(query, [], 100);

/** A page of the ledger. @param {URLSearchParams} query @param {number} [limit] */
export const transactionsQuery = (query, limit) =>
  pageOf(query, ["kind", "from", "to", "reference", "id"], limit);

/** Days of an account's usage that can be shown. */
export const SPANS = [7, 30, 90];

/** The requests of the parts of an account's page, by their names in the address. */
export const partRequests = {
  usage: ahead((place) => {
    const [id = ""] = place.args;
    const days = SPANS.find((span) => String(span) === place.query.get("days")) ?? 30;
    return {
      days,
      plots: may("usage:read") ? loadPlots() : undefined,
      usage: may("usage:read") ? readUsage(id, { from: day(days - 1), group_by: "day" }) : undefined,
      keys: may("keys:read") ? listKeys(id, keysPage(place)) : undefined,
    };
  }),
  transactions: ahead(({ args: [id = ""], query }) => ({
    page: listTransactions(id, transactionsQuery(query)),
  })),
  tasks: ahead(({ args: [id = ""], query }) => ({
    page: listTasks(id, pageOf(query, ["status", "endpoint", "from"])),
    prices: listPrices(),
  })),
  refusals: ahead(({ args: [id = ""], query }) => ({
    page: listRefusals(id, pageOf(query, ["key_id", "from", "to"], 100)),
  })),
  timeline: ahead(({ args: [id = ""], query }) => ({
    page: listTimeline(id, pageOf(query, ["charges", "from", "to"])),
  })),
  webhooks: ahead(({ args: [id = ""] }) => ({ page: listWebhooks(id) })),
};

/** @typedef {keyof typeof partRequests} PartName */

/** The rights of which a part needs one. @type {Record<PartName, Scope[]>} */
const PART_SCOPES = {
  usage: ["keys:read", "usage:read"],
  transactions: ["credits:read"],
  tasks: ["tasks:read"],
  refusals: ["usage:read"],
  timeline: ["audit:read"],
  webhooks: ["webhooks:write"],
};

const partNames = /** @type {PartName[]} */ (Object.keys(partRequests));

/** The parts that are not empty for this token; the first is shown where none is named. */
export const ownParts = () => partNames.filter((name) => PART_SCOPES[name].some(may));

/** The part that the address names. @param {Place} place */
export const partOf = ({ args: [, named = ownParts()[0]] }) =>
  partNames.find((name) => name === named) ?? "usage";

/** Asks for what the view needs that the address names, while the rest of the page is on its way. */
function begin() {
  const place = here();
  const name = place.view || "overview";
  if (!isKnown() || (name === "overview" && !mayOfAll("usage:read"))) return;
  /** @type {((place: Place) => object)[]} */
  const needed = [readinessRequest];
  if (Object.hasOwn(viewRequests, name))
    needed.push(viewRequests[/** @type {keyof typeof viewRequests} */ (name)]);
  if (name === "account") needed.push(partRequests[partOf(place)]);
  if (!IN_THE_PAGE.includes(name === "account" ? partOf(place) : name)) expectMore();
  for (const send of needed) begun.set(send, send(place));
}

try {
  begin();
} catch {
  // Whoever shows the view asks again, and tells why it cannot be asked.
}
