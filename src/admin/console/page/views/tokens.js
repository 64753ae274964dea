import { createToken, ownAccounts, ownScopes, revokeToken } from "../api.js";
import { ask } from "../dialogs.js";
import { actions, asking, badge, code, heading, html, link, moment } from "../dom.js";
import { given, momentOrNull, required } from "../fields.js";
import { hrefTo } from "../location.js";
import { viewRequests } from "../requests.js";
import { pagedTable } from "../table.js";

/** Tokens of the management API: made with scopes, shown once, revoked. @param {Context} context @returns {Promise<Content>} */
export async function showTokens({ place, again }) {
  const tokenId = place.query.get("token_id");
  const page = await viewRequests.tokens(place).page;
  const revoke = (/** @type {Token} */ one) =>
    tokenState(one) === "active"
      ? asking("Revoke …", () => askRevokeToken(one), again, undefined, `Revoke token ${one.label}`)
      : "";
  return [
    heading("Tokens", again),
    actions(
      asking("Create token …", () => askCreateToken(), again, "primary"),
      TOKEN_PRESETS.map(([name, scopes]) => {
        const own = scopes.filter((scope) => ownScopes().includes(scope));
        return own.length > 0 && asking(`${name} …`, () => askCreateToken(own), again);
      }),
    ),
    pagedTable(
      "Tokens of the management API",
      [
        { title: "Label", header: true, wrap: true, of: (one) => one.label },
        { title: "Token", of: (one) => one.token_id, as: code },
        { title: "Scopes", wrap: true, cell: (one) => one.scopes.join(", ") },
        { title: "Made with", cell: (one) => one.parent ?? "–" },
        { title: "Accounts", wrap: true, cell: (one) => one.accounts?.join(", ") ?? "all" },
        { title: "Created", of: (one) => one.created_at, as: moment },
        { title: "Expires", cell: (one) => (one.expires_at ? moment(one.expires_at) : "never") },
        { title: "State", of: tokenState, as: badge },
        { title: "Action", cell: revoke },
      ],
      page,
      undefined,
      tokenId ? `There is no token ${tokenId}.` : "There is none: only ADMIN_TOKEN opens the management API.",
    ),
    tokenId && html`<p>${link(hrefTo(["tokens"]), "All tokens")}</p>`,
  ];
}

const READ_SCOPES = /** @type {const} */ ([
  "accounts:read",
  "keys:read",
  "credits:read",
  "tasks:read",
  "usage:read",
  "audit:read",
]);
/** Who tokens are for, and what they need; the scopes can be changed in the form. @type {readonly (readonly [string, readonly Scope[]])[]} */
const TOKEN_PRESETS = [
  ["Read-only token", READ_SCOPES],
  ["Support token", [...READ_SCOPES, "keys:write", "tasks:write", "webhooks:write"]],
  ["Billing token", ["accounts:read", "credits:read", "credits:write", "usage:read", "audit:read"]],
  [
    "Shop token",
    [
      "accounts:read",
      "accounts:write",
      "accounts:reinstate",
      "keys:read",
      "keys:write",
      "credits:read",
      "credits:write",
      "tasks:read",
      "tasks:write",
      "usage:read",
      "webhooks:write",
    ],
  ],
];

/** @param {readonly Scope[]} ticked */
const askCreateToken = (ticked = []) =>
  ask({
    title: "Create a token",
    lines: [
      "For a program or a person. It can have no right that you do not have.",
      "It ends when your own token is revoked.",
    ],
    fields: [
      {
        name: "label",
        label: "Label",
        hint: "Whose it is; it stands beside all that is done with it.",
        check: required,
      },
      {
        name: "scopes",
        label: "Scopes",
        type: "checks",
        value: ticked.join(),
        options: ownScopes().map((scope) => [scope, scope]),
        check: (value) => (value ? undefined : "are missing: tick at least one"),
      },
      {
        name: "accounts",
        label: "Accounts",
        hint: "Ids with commas between them. Empty: all.",
        value: ownAccounts()?.join(", ") ?? "",
      },
      { name: "expires_at", label: "Expires (UTC)", hint: "Empty: never.", type: "moment" },
    ],
    verb: "Create it",
    async run(values) {
      const accounts = (values.accounts ?? "").split(",").map((id) => id.trim());
      const made = await createToken(
        given({
          label: values.label,
          scopes: (values.scopes ?? "").split(","),
          accounts: values.accounts ? accounts.filter(Boolean) : undefined,
          expires_at: momentOrNull(values.expires_at),
        }),
      );
      const said = `Token ${made.token_id}, ${made.label}, is created.`;
      const hint = "It is shown this once and kept nowhere. If it is lost, revoke it and create another one.";
      const shownOnce = made.token ? { label: "The new token", value: made.token, hint } : undefined;
      return { said, shownOnce, confirmed: made.confirmed };
    },
  });

/** @param {Token} token */
const askRevokeToken = ({ token_id, label }) =>
  ask({
    title: "Revoke this token?",
    lines: [
      `Token ${token_id}, ${label}, ends at once and for good: its next request is answered 401.`,
      "All tokens that were made with it, directly or not, end with it.",
    ],
    verb: "Revoke it",
    danger: true,
    run: () => revokeToken(token_id),
    said: `Token ${token_id} is revoked.`,
  });

/** @param {{ revoked_at?: string | null, expires_at?: string | null }} of a token */
function tokenState({ revoked_at, expires_at }) {
  if (revoked_at) return "revoked";
  return expires_at && Date.parse(expires_at) <= Date.now() ? "expired" : "active";
}
