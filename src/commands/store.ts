import { Command } from "commander";
import { acceptStore, knownLoss } from "../store/acceptance.ts";
import type { Loss } from "../store/store-marks.ts";
import { command, print, requireConfig, table, withRedis } from "./context.ts";

/** `tollgate store ...` */
export function storeCommand(): Command {
  return new Command("store")
    .description("a Redis that came back older than what it confirmed")
    .addCommand(showCommand())
    .addCommand(acceptCommand());
}

function showCommand(): Command {
  return command("show", "what the store is known to lack; changes nothing").action(
    async (flags: { json?: boolean }) => {
      const loss = await withRedis((redis) => knownLoss(redis, requireConfig().store.journal));
      const ok = loss === undefined;
      const text = loss ? inWords(loss) : "This store has all that it is known to have confirmed.";
      print({ json: { ok, ...shown(loss) }, text, ok }, flags);
    },
  );
}

function acceptCommand(): Command {
  return command("accept", "use a store in spite of what it lacks; lists what is known to be lost").action(
    async (flags: { json?: boolean }) => {
      const loss = await withRedis((redis) => acceptStore(redis, requireConfig().store.journal));
      const text = `${inWords(loss)}\n\nAccepted: gateways use this store again within seconds.`;
      print({ json: { accepted: true, ...shown(loss) }, text }, flags);
    },
  );
}

function shown(loss: Loss = { missing: [], charges: [] }): Record<string, unknown> {
  return {
    missing: loss.missing.map(({ ledger, id, has, olderMs, accountId, kind, credits, reference }) => ({
      ledger,
      last_known: id,
      has,
      older_ms: olderMs,
      kind,
      account_id: accountId,
      credits,
      reference,
    })),
    sent_again: loss.charges.map(({ requestId, accountId, credits, taskId }) => ({
      request_id: requestId,
      account_id: accountId,
      credits,
      task_id: taskId,
    })),
  };
}

function inWords({ missing, charges }: Loss): string {
  const rows = missing.map(({ ledger, id, has, olderMs, kind, accountId, credits, reference }) => {
    const older = has === "" ? "all of it" : `${olderMs} ms`;
    return [ledger, id, has || "nothing", older, kind, accountId, String(credits), reference];
  });
  const heads = [
    "LEDGER",
    "LAST KNOWN",
    "THE STORE HAS",
    "OLDER BY",
    "LAST ENTRY",
    "ACCOUNT",
    "CREDITS",
    "REFERENCE",
  ];
  const resent = charges.map(({ requestId, accountId, credits, taskId }) => [
    requestId,
    accountId,
    String(credits),
    taskId,
  ]);
  return [
    "The store lacks what it has confirmed. Of each ledger the last known entry is shown; those before it, back to what",
    "the store has, are missing too.",
    "",
    table(heads, rows),
    ...(charges.length === 0
      ? []
      : ["", "Charges that a gateway still holds, and sends again once the store is accepted:", ""]),
    ...(charges.length === 0 ? [] : [table(["REQUEST", "ACCOUNT", "CREDITS", "TASK"], resent)]),
  ].join("\n");
}
