import { get } from "./api.js";
import { accountLink, bar, code, count, el, heading, hint, table, unreadNotes, usage } from "./dom.js";

/** Keys by what they used and by what they were refused today, over all gateways. */
export async function showKeys(/** @type {HTMLElement} */ view, /** @type {() => void} */ again) {
  const [use, refused] = await Promise.all([get("top-keys"), get("refusals")]);
  const most = refused.refusals[0]?.count ?? 0;
  const cut = use.complete
    ? undefined
    : el(
        "p",
        { className: "note" },
        `Only the first ${count(use.keys_looked_at)} keys were looked at; others may have used more.`,
      );
  view.replaceChildren(
    heading("Keys today", again),
    hint("Over all gateways, read from Redis. The day is the UTC day."),
    ...(cut ? [cut] : []),
    ...unreadNotes(use),
    table(
      "Most used",
      [
        { title: "Key", header: true, cell: (key) => code(key.key_id) },
        { title: "Account", cell: (key) => accountLink(key.account_id) },
        { title: "Tier", cell: (key) => key.tier },
        { title: "Today", numeric: true, cell: (key) => usage(key.day_count, key.daily_limit, "today") },
        {
          title: "Last 60 s",
          numeric: true,
          cell: (key) => usage(key.window_used, key.rate_limit, "last 60 s"),
        },
        { title: "Slots", numeric: true, cell: (key) => usage(key.active, key.max_concurrent, "slots") },
        { title: "State", cell: (key) => (key.usable ? "good" : "revoked or expired") },
      ],
      use.keys,
      "No key was used today.",
    ),
    table(
      "Most refused",
      [
        { title: "Key", header: true, cell: (row) => code(row.key_id) },
        { title: "Account", cell: (row) => accountLink(row.account_id) },
        { title: "Why", cell: (row) => code(row.outcome) },
        { title: "Refusals", numeric: true, cell: (row) => bar(row.count, most) },
      ],
      refused.refusals,
      "No known key was refused today.",
    ),
    hint("Gateways add their refusals every 5 s. Requests without a known key are in the overview."),
  );
}
