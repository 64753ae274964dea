/** @import { Account, AccountUse, Key, List } from "./objects.d.ts" */
import { actions, badge, button, el, keyLink, usage } from "./dom.js";
import { count, momentText } from "./format.js";
import { askCreateKey } from "./key-actions.js";
import { may } from "./session.js";
import { paging, table } from "./table.js";

/**
 * The keys of an account with what is used of their limits; an action is on a key's own page.
 * @param {Account} account
 * @param {List<Key>} keys
 * @param {AccountUse} use of these keys
 * @param {() => void} again
 * @returns {Node[]}
 */
export function keysPart(account, keys, use, again) {
  const used = new Map(use.keys.map((one) => [one.key_id, one]));
  const create = () => void askCreateKey(account).then((done) => done && again());
  return [
    ...actions(may("keys:write") && button("Create key …", create)),
    table(
      "Keys",
      [
        { title: "Key", header: true, cell: (key) => keyLink(key.account_id, key.key_id) },
        { title: "Label", wrap: true, cell: (key) => key.label ?? "–", by: (key) => key.label },
        { title: "Tier", cell: (key) => key.tier, by: (key) => key.tier },
        {
          title: "Last 60 s",
          numeric: true,
          cell: (key) =>
            usage(used.get(key.key_id)?.window_used, used.get(key.key_id)?.rate_limit, "last 60 s"),
          by: (key) => used.get(key.key_id)?.window_used,
        },
        {
          title: "Slots",
          numeric: true,
          cell: (key) => usage(used.get(key.key_id)?.active, used.get(key.key_id)?.max_concurrent, "slots"),
          by: (key) => used.get(key.key_id)?.active,
        },
        {
          title: "Today",
          numeric: true,
          cell: (key) => usage(used.get(key.key_id)?.day_count, used.get(key.key_id)?.daily_limit, "today"),
          by: (key) => used.get(key.key_id)?.day_count,
        },
        {
          title: "This month",
          numeric: true,
          cell: (key) => usage(key.spent_this_month, key.monthly_credits, "credits this month"),
          by: (key) => key.spent_this_month,
        },
        { title: "State", cell: keyState, by: (key) => key.status },
      ],
      keys.data,
      "It has no keys.",
    ),
    paging(keys, `${count(keys.data.length)} keys are shown.`),
  ];
}

/** @param {Key} key */
export function keyState(key) {
  if (key.status !== "active" || !key.expires_at) return badge(key.status);
  return [
    badge(key.status),
    el("div", { className: "hint" }, `until ${momentText(key.expires_at).slice(0, 10)}`),
  ];
}
