import { lookUpKey } from "../api.js";
import { ask } from "../dialogs.js";
import { say } from "../dom.js";
import { capitalized, wordsOf } from "../format.js";
import { hrefTo } from "../location.js";

/** A key that has leaked leads to its page. It goes out in a body, and is kept nowhere. @param {string} secret */
async function findLeakedKey(secret) {
  const { account_id: account, key_id: id } = await lookUpKey(secret);
  location.hash = hrefTo(["key", account, id]);
  return `This is key ${id} of account ${account}.`;
}

export const askLeakedKey = () =>
  ask({
    title: "Whose key is this?",
    lines: [
      "Paste a key that has leaked: you see whose it is, what it was used for, and can replace it at once.",
      "It is in no address and no log, and is not stored.",
    ],
    fields: [
      {
        name: "secret",
        label: "The key",
        check: (value) => (/^sk_.{5,}$/.test(value) ? undefined : "must begin with sk_"),
      },
    ],
    verb: "Find it",
    run: async ({ secret = "" }) => ({ said: await findLeakedKey(secret) }),
  });

/** Looks up a key that was typed where ids are searched for. @param {string} secret */
export async function openLeakedKey(secret) {
  say("Looking for this key …");
  try {
    say(await findLeakedKey(secret));
  } catch (error) {
    say(capitalized(wordsOf(error)));
  }
}
