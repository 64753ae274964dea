import { readAccount, reverseGrant } from "../api.js";
import { ask } from "../dialogs.js";
import { credits, reasonField, referenceField } from "../fields.js";
import { count, momentText } from "../format.js";
import { subjectOf } from "../sentences.js";

/** @param {Transaction} transaction */
const isGrant = ({ kind, reference: of }) => ["purchase", "trial", "goodwill"].includes(kind) && Boolean(of);

/** The part of a grant that no reversal has taken; 0 for other entries. @param {Transaction} grant */
export const leftOf = (grant) => (isGrant(grant) ? grant.amount - (grant.reversed ?? 0) : 0);

/** The balance is read when it is asked: it may have been spent since the list was read. @param {string} id @param {Transaction} grant */
export async function askReversal(id, grant) {
  const { amount: granted, reversed = 0, reference: of, by, kind, created_at: at } = grant;
  const { balance, held } = (await readAccount(id)).value;
  const left = Math.min(leftOf(grant), balance);
  const before = reversed > 0 ? ` ${count(reversed)} of it were taken back before.` : "";
  const isHeld = held > 0 ? `, beside ${count(held)} that are held` : "";
  const wanted = (/** @type {Record<string, string>} */ { amount }) => (amount ? Number(amount) : left);
  return ask({
    title: `Take back this ${kind}?`,
    lines: [
      `${subjectOf(by)} granted ${count(granted)} credits at ${momentText(at)}, reference ${of}.${before}`,
      left > 0
        ? `The account can spend ${count(balance)}${isHeld}: at most ${count(left)} can be taken back.`
        : `Nothing is left to take back: the account can spend ${count(balance)}${isHeld}.`,
    ],
    fields: [
      {
        name: "amount",
        label: "Credits",
        hint: "Empty: all that is left.",
        type: "number",
        check: (value) => (value ? credits(value) : undefined),
      },
      reasonField("The customer sees it."),
      // One for each state of the grant: a repeat whose answer was lost takes nothing twice.
      referenceField(
        "The same one counts once, however often it is sent.",
        `undo ${grant.id}${reversed > 0 ? ` after ${reversed}` : ""}`,
      ),
    ],
    verb: "Take back",
    danger: true,
    preview: (values) => {
      const taken = Math.min(wanted(values), left);
      return taken > 0
        ? `Balance ${count(balance)} → ${count(balance - taken)} credits (−${count(taken)}).`
        : "";
    },
    async run({ amount, reason, reference: own }) {
      const body = { of, reason, reference: own, ...(amount && { amount: Number(amount) }) };
      const { value, isRepeat } = await reverseGrant(id, body);
      const { reversed: taken = 0, requested = taken, confirmed } = value;
      const short = taken < requested ? `, of ${count(requested)} that were asked for` : "";
      const said = isRepeat
        ? `Nothing is changed: the reference ${own} took back ${count(taken)} credits before.`
        : `${count(taken)} credits of the grant ${of} are taken back${short}. The balance is ${count(value.balance)}.`;
      return { said, confirmed };
    },
  });
}
