import { type Command, InvalidArgumentError, Option } from "commander";
import { durationMs } from "../config/setting-types.ts";
import { findKey } from "../operations/keys/keys.ts";
import { rotateKey } from "../operations/keys/rotate-key.ts";
import { type ActorFlags, actorOf, changing } from "./options.ts";
import { print } from "./output.ts";
import { withRedisToWrite } from "./redis.ts";
import { fromNow, iso, listing, paint, widthOf, wrapped } from "./terminal.ts";

const OVERLAP_MAX_MS = 366 * 86_400_000;
const LINE_CHARS = 100;

export function rotateCommand(): Command {
  return changing("rotate", "make a new key like this one, and end this one")
    .argument("<key-id>", "the key's id, or the key itself")
    .addOption(
      new Option("--overlap <duration>", "how long the old one goes on, such as 24h")
        .argParser(overlapMs)
        .default(0, "it ends at once"),
    )
    .action(async (id: string, flags: ActorFlags & { overlap: number; json?: boolean }) => {
      const { result, confirmed } = await withRedisToWrite(async (nodes) => {
        const found = await findKey(nodes, id);
        return { issued: await rotateKey(nodes, found, flags.overlap, actorOf(flags)), old: found };
      });
      const { old, issued } = result;
      const { key, keyId, accountId, oldEndsAtMs } = issued;
      const json = { key, key_id: keyId, account_id: accountId, old_key_id: old.keyId };
      const ends =
        flags.overlap === 0
          ? "The old key has ended."
          : `The old key goes on until ${iso(oldEndsAtMs)} (${fromNow(oldEndsAtMs)}). Until then each of the two has its own window, slots and day, so that together they may use the limits twice. \`tollgate keys revoke ${old.keyId}\` ends it sooner.`;
      const text = `${listing(json)}\n${paint("yellow", "Keep the key now: it is not shown again.")}\n${wrapped(ends, widthOf(process.stdout) ?? LINE_CHARS, 0)}`;
      const ifUnconfirmed = `Keep the new key, and repeat this when they are back: if the answer is that ${old.keyId} was rotated before, the new key is valid; else use the key that is printed then.`;
      print({ json: { ...json, old_expires_at: iso(oldEndsAtMs) }, text, confirmed, ifUnconfirmed }, flags);
    });
}

function overlapMs(text: string): number {
  const ms = durationMs(text);
  if (ms === undefined || ms > OVERLAP_MAX_MS) {
    throw new InvalidArgumentError("It must be a duration such as 30m, 24h or 7d, at most 366d.");
  }
  return ms;
}
