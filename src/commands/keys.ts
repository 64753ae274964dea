import { type Command, InvalidArgumentError } from "commander";
import {
  changeOfKey,
  readingOfKey,
  refusalsOfKeyRoute,
  revocationOfKey,
  rotationOfKey,
} from "../admin/api/routes/keys.ts";
import { keyShown } from "../admin/api/shown.ts";
import { durationMs } from "../config/setting-types.ts";
import { CAPS, TIER_LIMITS } from "../domain/limits.ts";
import { refusalsOf } from "../operations/accounts/refusals.ts";
import { issueKey, requireNewKeysTier } from "../operations/keys/issue-key.ts";
import { storeNowMs } from "../redis/server-info.ts";
import { importCommand } from "./keys-import.ts";
import { listCommand, refusalsJson, refusalsText } from "./keys-list.ts";
import { keyOptions, type NewKeyFlags, newKey, withKeyStore } from "./keys-new.ts";
import {
  flat,
  limitOptions,
  listed,
  operationCommand,
  PERIOD,
  paging,
  timeIn,
  workCommand,
} from "./operation-command.ts";
import { actorOf, group } from "./options.ts";
import { print } from "./output.ts";
import { requireConfig } from "./redis.ts";
import { fromNow, iso, listing, paint, widthOf, wrapped } from "./terminal.ts";

const OVERLAP_MAX_MS = 366 * 86_400_000;
const LINE_CHARS = 100;
const ONCE = "Keep the key now: it is not shown again.";

const KEY = { "<key-id>": "the key's id, or the key itself" };

export const keysCommand = group("keys", "API keys: make, show, change and end them", [
  createCommand,
  importCommand,
  listCommand,
  workCommand(
    readingOfKey,
    async (operate, nodes) => {
      const key = await operate();
      const nowMs = await storeNowMs(nodes.of(key.partition));
      return { key, refusals: await refusalsOf(nodes, key.accountId, nowMs, { keyId: key.keyId }) };
    },
    {
      name: "show",
      about: "one key, and when and why it was refused in the last eight days",
      arguments: KEY,
      show({ key, refusals }) {
        const fields = flat(keyShown(key, requireConfig().tiers));
        const text = [listing(fields), ...refusalsText(refusals)].join("\n\n");
        return { json: { ...fields, ...refusalsJson(refusals) }, text };
      },
    },
  ),
  operationCommand(refusalsOfKeyRoute, {
    name: "refusals",
    about: "when and why a key was refused: the last 1,000 of the last day, latest first",
    arguments: KEY,
    options: {
      "--outcome <name>": "of this kind only, such as rate_limited",
      "--request-id <id>": "of this request only, by the gateway's or the client's id",
      ...PERIOD,
      ...paging(100),
    },
    show: listed(
      "refusals",
      {
        ...{ TIME: timeIn("at"), OUTCOME: "outcome", LIMIT: "limit", USED: "used" },
        ...{ "RETRY AFTER": "retry_after", REQUEST: "request_id", "CLIENT'S ID": "client_request_id" },
      },
      ["CLIENT'S ID"],
    ),
  }),
  operationCommand(revocationOfKey, {
    name: "revoke",
    about: "end a key at once and for good",
    arguments: KEY,
    show: ({ key, outcome }) => ({
      json: { outcome, ...flat(keyShown(key, requireConfig().tiers)) },
      text: `Key ${key.keyId} ${outcome === "revoked" ? "is revoked" : "was revoked before"}.`,
    }),
  }),
  operationCommand(rotationOfKey, {
    name: "rotate",
    about: "make a new key like this one, and end this one",
    arguments: KEY,
    options: {
      "--overlap <duration>": {
        about: "how long the old one goes on, such as 24h",
        parse: overlap,
        default: "0s",
        defaultText: "it ends at once",
      },
    },
    show({ key: { keyId, accountId }, secret: key, oldEndsAtMs }, { params, body }) {
      const old = params.key!;
      const endsAt = iso(oldEndsAtMs);
      const json = { key, key_id: keyId, account_id: accountId, old_key_id: old };
      const ends =
        durationMs((body as { overlap: string }).overlap) === 0
          ? "The old key has ended."
          : `The old key goes on until ${endsAt} (${fromNow(oldEndsAtMs)}). Until then each of the two has its own window, slots and day, so that together they may use the limits twice. \`tollgate keys revoke ${old}\` ends it sooner.`;
      const text = `${listing(json)}\n${paint("yellow", ONCE)}\n${wrapped(ends, widthOf(process.stdout) ?? LINE_CHARS, 0)}`;
      const ifUnconfirmed = `Keep the new key, and repeat this when they are back: if the answer is that ${old} was rotated before, the new key is valid; else use the key that is printed then.`;
      return { json: { ...json, old_expires_at: endsAt }, text, ifUnconfirmed };
    },
  }),
  operationCommand(changeOfKey, {
    name: "set",
    about: "change what a key may do, from its next request on",
    arguments: KEY,
    options: {
      "--tier <name>": "a tier of the config",
      ...limitOptions(TIER_LIMITS, { word: "default" }),
      ...limitOptions(CAPS, { word: "none", least: 0 }),
      "--allowed-endpoints <list|all>": "the only endpoints that it may use, with commas between",
      "--allowed-addresses <list|all>": "the only client addresses that it may be used from, as CIDR ranges",
      "--label <text>": "a name for it; empty takes it away",
      "--expires <iso|never>": "when it ends",
    },
  }),
]);

function createCommand(): Command {
  return newKey("create", "make a key; it is shown once").action(async (flags: NewKeyFlags) => {
    const config = requireConfig();
    requireNewKeysTier(() => config.tiers, flags.tier);
    const { result, confirmed } = await withKeyStore(config, (nodes) =>
      issueKey(nodes, keyOptions(flags), actorOf(flags)),
    );
    const { key, keyId, accountId } = result;
    const json = { key, key_id: keyId, account_id: accountId };
    const text = `${listing(json)}\n${paint("yellow", ONCE)}`;
    const ifUnconfirmed = `Keep the key, and run \`tollgate keys import\` with it, --account ${accountId} and the same options when they are back: it makes no second key.`;
    print({ json, text, confirmed, ifUnconfirmed }, flags);
  });
}

function overlap(text: string): string {
  if ((durationMs(text) ?? Number.POSITIVE_INFINITY) <= OVERLAP_MAX_MS) return text;
  throw new InvalidArgumentError("It must be a duration such as 30m, 24h or 7d, at most 366d.");
}
