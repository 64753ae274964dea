import { Command } from "commander";
import { byLimit, CAPS, LIMITS, TIER_LIMITS } from "../domain/limits.ts";
import { refusalsOf } from "../operations/accounts/refusals.ts";
import { changeKey, type KeyChanges } from "../operations/keys/change-key.ts";
import { issueKey } from "../operations/keys/issue-key.ts";
import { findKey } from "../operations/keys/keys.ts";
import { revokeKey } from "../operations/keys/revoke-key.ts";
import { OperatorError } from "../records/operator-error.ts";
import { storeNowMs } from "../redis/server-clock.ts";
import { importCommand } from "./keys-import.ts";
import { listCommand } from "./keys-list.ts";
import { keyOptions, type NewKeyFlags, newKey, requireTier, withKeyStore } from "./keys-new.ts";
import { rotateCommand } from "./keys-rotate.ts";
import { refusalsJson, refusalsText, shown } from "./keys-shown.ts";
import { limitIn, limitOptions } from "./limit-options.ts";
import { requireConfig } from "./local-config.ts";
import { type ActorFlags, actorOf, changing, command, futureMs } from "./options.ts";
import { print } from "./output.ts";
import { withRedis, withRedisToWrite } from "./redis.ts";
import { listing, paint } from "./terminal.ts";

interface SetFlags extends ActorFlags {
  tier?: string;
  expires?: number | "never";
  label?: string;
  json?: boolean;
}

/** `tollgate keys ...` */
export function keysCommand(): Command {
  return new Command("keys")
    .description("API keys: make, show, change and end them")
    .addCommand(createCommand())
    .addCommand(importCommand())
    .addCommand(listCommand())
    .addCommand(showCommand())
    .addCommand(revokeCommand())
    .addCommand(rotateCommand())
    .addCommand(setCommand());
}

function createCommand(): Command {
  return newKey("create", "make a key; it is shown once").action(async (flags: NewKeyFlags) => {
    const config = requireConfig();
    requireTier(flags.tier, config);
    const { result, confirmed } = await withKeyStore(config, (nodes) =>
      issueKey(nodes, keyOptions(flags), actorOf(flags)),
    );
    const { key, keyId, accountId } = result;
    const json = { key, key_id: keyId, account_id: accountId };
    const text = `${listing(json)}\n${paint("yellow", "Keep the key now: it is not shown again.")}`;
    const ifUnconfirmed = `Keep the key, and run \`tollgate keys import\` with it, --account ${accountId} and the same options when they are back: it makes no second key.`;
    print({ json, text, confirmed, ifUnconfirmed }, flags);
  });
}

function showCommand(): Command {
  return onKey("show", "one key, and when and why it was refused in the last eight days").action(
    async (id: string, flags: { json?: boolean }) => {
      const { key, refusals } = await withRedis(async (nodes) => {
        const found = await findKey(nodes, id);
        const nowMs = await storeNowMs(nodes.of(found.partition));
        return {
          key: found,
          refusals: await refusalsOf(nodes, found.accountId, nowMs, { keyId: found.keyId }),
        };
      });
      const text = [listing(shown(key)), ...refusalsText(refusals)].join("\n\n");
      print({ json: { ...shown(key), ...refusalsJson(refusals) }, text }, flags);
    },
  );
}

function revokeCommand(): Command {
  return onKeyToChange("revoke", "end a key at once and for good").action(
    async (id: string, flags: ActorFlags & { json?: boolean }) => {
      const { result, confirmed } = await withRedisToWrite(async (nodes) => {
        const found = await findKey(nodes, id);
        return {
          outcome: await revokeKey(nodes, found, actorOf(flags)),
          key: await findKey(nodes, found.keyId),
        };
      });
      const { key, outcome } = result;
      const text = `Key ${key.keyId} ${outcome === "revoked" ? "is revoked" : "was revoked before"}.`;
      print({ json: { outcome, ...shown(key) }, text, confirmed }, flags);
    },
  );
}

function setCommand(): Command {
  const set = onKeyToChange("set", "change what a key may do, from its next request on").option(
    "--tier <name>",
    "a tier of the config",
  );
  limitOptions(set, TIER_LIMITS, { word: "default" });
  return limitOptions(set, CAPS, { word: "none", least: 0 })
    .option("--label <text>", "a name for it; empty takes it away")
    .option("--expires <iso|never>", "when it ends", or("never", futureMs))
    .action(async (id: string, flags: SetFlags) => {
      const changes = changesOf(flags);
      const { limits, ...others } = changes;
      if (Object.values({ ...others, ...limits }).every((change) => change === undefined)) {
        throw new OperatorError("nothing to change; give an option such as --tier or --label");
      }
      if (changes.tier !== undefined) requireTier(changes.tier);
      const { result: key, confirmed } = await withRedisToWrite(async (nodes) => {
        const found = await findKey(nodes, id);
        await changeKey(nodes, found, changes, actorOf(flags));
        return findKey(nodes, found.keyId);
      });
      print({ json: shown(key), text: listing(shown(key)), confirmed }, flags);
    });
}

const KEY_ARGUMENT = ["<key-id>", "the key's id, or the key itself"] as const;
const onKeyToChange = (name: string, description: string): Command =>
  changing(name, description).argument(...KEY_ARGUMENT);
const onKey = (name: string, description: string): Command =>
  command(name, description).argument(...KEY_ARGUMENT);

/** Commander takes null for a missing value, so the word itself stands for it. */
const or =
  <const Word extends string>(word: Word, parse: (text: string) => number) =>
  (text: string): number | Word =>
    text === word ? word : parse(text);

/** The word takes a value away. */
const orNull = (value: number | string | undefined): number | null | undefined =>
  typeof value === "string" ? null : value;

const changesOf = ({ tier, label, expires, ...flags }: SetFlags): KeyChanges => ({
  tier,
  label: label === "" ? null : label,
  limits: byLimit(LIMITS, ({ name }) => limitIn(flags, name)),
  expiresAtMs: orNull(expires),
});
