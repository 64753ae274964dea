/** @import { Account, AccountUse, Key, List } from "./objects.d.ts" */
import { actions, badge, button, el, keyLink, usage } from "./dom.js";
import { count, momentText } from "./format.js";
import { askCreateKey } from "./key-actions.js";
import { useColumns } from "./limit-fields.js";
import { CAPS } from "./limits.js";
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
        ...useColumns((/** @type {Key} */ key) => used.get(key.key_id)),
        ...CAPS.map(({ name, title, used: spent }) => ({
          title,
          numeric: true,
          cell: (/** @type {Key} */ key) => usage(key[spent], key[name], title.toLowerCase()),
          by: (/** @type {Key} */ key) => key[spent],
        })),
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
