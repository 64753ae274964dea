import {
  adjustCredits,
  createAccount,
  grantCredits,
  listPackages,
  patchAccount,
  readAccount,
} from "../api.js";
import { ask, unlessLeft } from "../dialogs.js";
import {
  credits,
  creditsUpOrDown,
  given,
  jsonObjectOrEmpty,
  labelField,
  limitFields,
  limitsOf,
  reasonField,
  referenceField,
  textOrNull,
} from "../fields.js";
import { count, signed } from "../format.js";

const MANY_CREDITS = 10_000;

/** @returns {Promise<string | undefined>} the id of the account that was made */
export async function askCreateAccount() {
  let id = "";
  const done = await ask({
    title: "Create an account",
    lines: ["It has no key and no credits at first."],
    fields: [
      {
        name: "account_id",
        label: "Account id",
        hint: "Empty: one is made.",
        check: (value) =>
          /^[\w.-]{0,64}$/.test(value) ? undefined : "has characters that an id cannot have",
      },
      labelField(""),
    ],
    verb: "Create it",
    async run({ account_id, label }) {
      const account = await createAccount(
        given({ account_id: textOrNull(account_id), label: textOrNull(label) }),
      );
      id = account.account_id;
      return { said: `Account ${id} is created.`, confirmed: account.confirmed };
    },
  });
  return done ? id : undefined;
}

/** @param {string | undefined} text */
const thresholdsOf = (text = "") =>
  text
    .split(",")
    .map((one) => one.trim())
    .filter((one) => one !== "")
    .map(Number);

/** @param {string} text */
const thresholdsProblem = (text) =>
  thresholdsOf(text).every((one) => Number.isSafeInteger(one) && one > 0)
    ? undefined
    : "must be whole numbers above 0, with commas";

/** @param {string} text */
const multiplierOrEmpty = (text) =>
  /^(\d{1,2}(\.\d{1,2})?)?$/.test(text) ? undefined : "must be a number such as 0.8, or empty";

/** @param {Account} account @param {string | null} etag */
export const askEdit = (account, etag) =>
  ask({
    title: `Edit account ${account.account_id}`,
    lines: ["Limits of an account hold over all its keys together, besides each key's own."],
    fields: [
      labelField(account.label),
      ...limitFields(account.limits, "no limit over all keys"),
      {
        name: "credits_below",
        label: "Alert below (credits)",
        hint: "Its endpoints get credits.low as its credits fall below one of these, with commas, such as 100, 10. Empty: never.",
        value: account.alerts?.credits_below.join(", ") ?? "",
        check: thresholdsProblem,
      },
      {
        name: "price_multiplier",
        label: "Price multiplier",
        hint: "What its requests cost, times the list price: 0.01 to 10, such as 0.8. Empty: the list price.",
        value: account.price_multiplier === 1 ? "" : String(account.price_multiplier),
        check: multiplierOrEmpty,
      },
      {
        name: "metadata",
        label: "Metadata",
        type: "lines",
        hint: "What your own systems keep here: a JSON object of at most 4 KiB. Empty: none.",
        value: account.metadata ? JSON.stringify(account.metadata, undefined, 2) : "",
        check: jsonObjectOrEmpty,
      },
    ],
    verb: "Save",
    run(values) {
      const metadata = values.metadata ? JSON.parse(values.metadata) : null;
      const alerts = { credits_below: thresholdsOf(values.credits_below) };
      const price_multiplier = values.price_multiplier ? Number(values.price_multiplier) : null;
      const label = textOrNull(values.label);
      const changes = { label, limits: limitsOf(values), alerts, price_multiplier, metadata };
      return patchAccount(account.account_id, changes, etag);
    },
    said: `Account ${account.account_id} is changed.`,
  });

/** @type {Record<AccountStatus, { verb: string, danger: boolean, lines: string[], said: string }>} */
const STATUS = {
  suspended: {
    verb: "Suspend",
    danger: true,
    lines: [
      "New generations and uploads are answered 403 at once. Polls and credits go on; so do tasks begun.",
    ],
    said: "is suspended",
  },
  closed: {
    verb: "Close",
    danger: true,
    lines: ["Every request of its keys is answered 403 at once, polls too. Its ledger stays."],
    said: "is closed",
  },
  active: {
    verb: "Activate",
    danger: false,
    lines: ["Its keys work again, within their limits."],
    said: "is active",
  },
};

/** @param {Account} account @param {string | null} etag @param {AccountStatus} status */
export const askStatus = (account, etag, status) =>
  ask({
    title: `${STATUS[status].verb} account ${account.account_id}?`,
    lines: STATUS[status].lines,
    verb: `${STATUS[status].verb} it`,
    danger: STATUS[status].danger,
    run: () => patchAccount(account.account_id, { status }, etag),
    said: `Account ${account.account_id} ${STATUS[status].said}.`,
  });

const ofBooking = referenceField(
  "What it is for, such as an invoice or a ticket. The same reference counts once, however often it is sent.",
);

/** @param {Package} one */
const priceOf = ({ price, currency }) => (price === null ? "" : `${price} ${currency}`);

/** @type {Field} */
const KIND_FIELD = {
  name: "kind",
  label: "Kind",
  type: "select",
  options: [
    ["purchase", "purchase: sold"],
    ["trial", "trial: given to try it out"],
    ["goodwill", "goodwill: given for a customer's trouble"],
  ],
};

/** @type {Field} */
const PAID_FIELD = {
  name: "paid",
  label: "Paid",
  hint: "By the customer for a purchase, such as 9.90 USD. Empty: the price of the package; without one it is not known.",
  check: (value) =>
    /^(\d+(\.\d+)? [A-Z]{3})?$/.test(value) ? undefined : "must be an amount and a currency such as 9.90 USD",
};

/** The account is read anew: the balance of when the page was read may have been spent. @param {string} id */
export async function askGrant(id) {
  const read = await unlessLeft(
    Promise.all([
      readAccount(id),
      listPackages().then(
        ({ data }) => data,
        () => [],
      ),
    ]),
  );
  if (!read) return false;
  const [{ value: account }, packages] = read;
  const amountOf = (/** @type {Record<string, string>} */ values) =>
    packages.find((one) => one.package === values.package)?.credits ?? Number(values.credits);
  return ask({
    title: `Grant credits to ${account.account_id}`,
    fields: [
      {
        name: "package",
        label: "Package",
        type: "select",
        options: [
          ["", "None: the credits below"],
          ...packages.map(
            (one) =>
              /** @type {const} */ ([
                one.package,
                [one.package, `${count(one.credits)} credits`, priceOf(one)].filter(Boolean).join(", "),
              ]),
          ),
        ],
      },
      {
        name: "credits",
        label: "Credits",
        hint: "A whole number, at least 1. Not read with a package.",
        type: "number",
        check: (value, values) => (values?.package ? undefined : credits(value)),
      },
      KIND_FIELD,
      ofBooking,
      PAID_FIELD,
    ],
    verb: "Grant",
    preview: (values) => balances(account, amountOf(values)),
    doubt: (values) => doubtAbout(account, amountOf(values)),
    async run(values) {
      const what = values.package ? { package: values.package } : { credits: Number(values.credits) };
      const { kind, reference, paid = "" } = values;
      const [amount_paid, currency] = paid.split(" ");
      const sale = paid && { amount_paid, currency };
      const booked = await grantCredits(account.account_id, { ...what, kind, reference, ...sale });
      return bookedFor(account, booked, reference);
    },
  });
}

/** As in a grant, the account is read anew. @param {string} id */
export async function askAdjust(id) {
  const account = (await unlessLeft(readAccount(id)))?.value;
  if (!account) return false;
  return ask({
    title: `Adjust the balance of ${account.account_id}`,
    lines: ["For corrections; a sale is a grant. The customer sees the reason among the transactions."],
    fields: [
      {
        name: "amount",
        label: "Change in credits",
        hint: "A whole number: 500 adds, -500 takes away.",
        type: "number",
        check: (value) => creditsUpOrDown(value) ?? beyondBalance(account, Number(value)),
      },
      reasonField(),
      ofBooking,
    ],
    verb: "Adjust",
    preview: ({ amount }) => balances(account, Number(amount)),
    doubt: ({ amount }) => doubtAbout(account, Number(amount)),
    async run({ amount, reason, reference }) {
      const body = { amount: Number(amount), reason, reference };
      return bookedFor(account, await adjustCredits(account.account_id, body), reference);
    },
  });
}

/** It is not sent: nobody has seen a balance that allows it. @param {Account} account @param {number} amount */
const beyondBalance = ({ balance }, amount) =>
  balance + amount < 0 ? `takes away more than the balance of ${count(balance)}` : undefined;

/** The balance before and after. @param {Account} account @param {number} amount */
function balances({ balance }, amount) {
  if (!Number.isSafeInteger(amount) || amount === 0) return `Balance now: ${count(balance)} credits.`;
  const after = balance + amount;
  if (after < 0) return `Balance ${count(balance)}: so many credits cannot be taken away.`;
  return `Balance ${count(balance)} → ${count(after)} credits (${signed(amount)}).`;
}

/** Asks again about many credits, and about taking half of a balance away. @param {Account} account @param {number} amount */
function doubtAbout({ account_id, balance }, amount) {
  const isMuch = Math.abs(amount) >= MANY_CREDITS || (amount < 0 && -amount * 2 >= balance);
  if (!isMuch) return undefined;
  return `${signed(amount)} credits for ${account_id}: the balance goes from ${count(balance)} to ${count(balance + amount)}. Are you sure?`;
}

/** @param {Account} account @param {Booked} booked @param {string | undefined} of the reference */
const bookedFor = ({ account_id }, { value: { amount, balance, confirmed }, isRepeat }, of) => ({
  said: isRepeat
    ? `Nothing is changed: reference ${of} of ${account_id} was booked before, with ${signed(amount)} credits. The balance is ${count(balance)}.`
    : `${signed(amount)} credits for ${account_id}, reference ${of}. The balance is ${count(balance)}.`,
  confirmed,
});
