import { createKey, listTiers, patchKey, revokeKey, rotateKey } from "../api.js";
import { ask, unlessLeft } from "../dialogs.js";
import { keyLink } from "../dom.js";
import {
  capFields,
  capsOf,
  given,
  labelField,
  limitFields,
  limitsOf,
  momentOrNull,
  momentValue,
  overlapField,
  textOrNull,
} from "../fields.js";
import { momentText } from "../format.js";

const WHERE = "where it is used";
const KEEP_IT =
  "It is shown this once and kept nowhere: hand it over safely now. If it is lost, rotate the key.";

/** @param {string | undefined} value a key's tier @returns {Promise<Field[]>} */
async function tierField(value) {
  const { data } = await listTiers();
  const options = data
    .filter(({ tier, deprecated }) => !deprecated || tier === value)
    .map(({ tier, deprecated }) => /** @type {const} */ ([tier, deprecated ? `${tier} (deprecated)` : tier]));
  const missing = value !== undefined && !data.some(({ tier }) => tier === value);
  return [
    {
      name: "tier",
      label: "Tier",
      type: "select",
      value: value ?? "standard",
      options: missing ? [[value, `${value} (not in the configuration)`], ...options] : options,
    },
  ];
}

/** @param {Partial<Key>} key @returns {Field[]} */
const moreFields = (key) => [
  ...limitFields(key.limits, "that of the tier"),
  ...capFields(key),
  {
    name: "expires_at",
    label: "Expires (UTC)",
    hint: "Empty: never.",
    type: "moment",
    value: momentValue(key.expires_at),
  },
];

/** Unlike crypto.randomUUID it is there over plain HTTP from afar too. */
const newIdempotencyKey = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join(
    "",
  );

/** @param {Account} account */
export async function askCreateKey(account) {
  // One for the dialog: a repeat whose answer was lost makes no second key.
  const idempotencyKey = newIdempotencyKey();
  const tiers = await unlessLeft(tierField(undefined));
  if (!tiers) return false;
  return ask({
    title: `Create a key of ${account.account_id}`,
    fields: [labelField("", WHERE), ...tiers, ...moreFields({})],
    verb: "Create it",
    async run(values) {
      const limits = given(limitsOf(values));
      const body = given({
        label: textOrNull(values.label),
        tier: values.tier,
        limits: Object.keys(limits).length > 0 ? limits : undefined,
        ...capsOf(values),
        expires_at: momentOrNull(values.expires_at),
      });
      const key = await createKey(account.account_id, body, idempotencyKey);
      return keyMade(key, ["Key ", linkTo(key), ` of account ${key.account_id} is created.`]);
    },
  });
}

/** @param {Key} made */
const linkTo = ({ account_id, key_id }) => keyLink(account_id, key_id);

/** @param {Key} made @param {Content[]} said with a link to its page: in the list it may be on the last one @returns {Done} */
function keyMade({ key, confirmed }, said) {
  if (key) return { said, confirmed, shownOnce: { label: "The new key", value: key, hint: KEEP_IT } };
  const why = " An earlier try had made it, and its secret cannot be shown again: rotate it.";
  return { said: [...said, why], confirmed };
}

/** @param {Key} key @param {string | null} etag */
export async function askEditKey(key, etag) {
  const tiers = await unlessLeft(tierField(key.tier));
  if (!tiers) return false;
  return ask({
    title: `Edit key ${key.key_id}`,
    fields: [labelField(key.label, WHERE), ...tiers, ...moreFields(key)],
    verb: "Save",
    run: (values) => patchKey(key, changesOf(key, values), etag),
    said: `Key ${key.key_id} is changed.`,
  });
}

/** An expiry to the second stays when it was not touched. @param {Key} key @param {Record<string, string>} values */
function changesOf(key, values) {
  const expiry = values.expires_at ?? "";
  return {
    label: textOrNull(values.label),
    limits: limitsOf(values),
    ...capsOf(values),
    tier: values.tier,
    ...(expiry === momentValue(key.expires_at) ? {} : { expires_at: momentOrNull(expiry) }),
  };
}

/** @param {Key} key @param {string} [overlap] as it is chosen first; 0s of a key that has leaked */
export const askRotate = (key, overlap = "24h") =>
  ask({
    title: overlap === "0s" ? "Replace this key now?" : "Rotate this key?",
    lines: [
      `Key ${key.key_id}${key.label ? ` (${key.label})` : ""} of account ${key.account_id} gets a successor with the same tier, limits and expiry.`,
    ],
    fields: [overlapField("The old one works for another", overlap)],
    verb: overlap === "0s" ? "Replace it" : "Rotate it",
    danger: true,
    async run({ overlap: chosen }) {
      const made = await rotateKey(key, { overlap: chosen });
      return keyMade(made, [`Key ${key.key_id} is followed by `, linkTo(made), "."]);
    },
  });

/** @param {Key} key */
export const askRevoke = (key) =>
  ask({
    title: "Revoke this key?",
    lines: [
      `Key ${key.key_id}${key.label ? ` (${key.label})` : ""} of account ${key.account_id} ends at once and for good: its next request is answered 401.`,
      "Tasks that it has begun go on; the account's other keys can poll them.",
    ],
    verb: "Revoke it",
    danger: true,
    async run() {
      const { revoked_at, confirmed } = await revokeKey(key);
      return { said: `Key ${key.key_id} is revoked since ${momentText(revoked_at)}.`, confirmed };
    },
  });
