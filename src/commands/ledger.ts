import type { Command } from "commander";
import { chargesWaitingIn } from "../durability/outbox/journal-files.ts";
import { verifyLedger } from "../ledger/verify.ts";
import type { Verification } from "../ledger/verify-run.ts";
import { OperatorError } from "../records/operator-error.ts";
import { exportCommand } from "./ledger-export.ts";
import { command, group } from "./options.ts";
import { findingsText, numbered, print } from "./output.ts";
import { ownConfig, withRedis } from "./redis.ts";
import { startProgress } from "./terminal.ts";

export const ledgerCommand = group("ledger", "the ledger: verify and export it", [
  verifyCommand,
  exportCommand,
]);

function verifyCommand(): Command {
  return command("verify", "compare balances, holds, slots and the ledger, while traffic goes on")
    .option("--account <id>", "of this account only")
    .action(async (flags: { account?: string; json?: boolean }) => {
      const progress = startProgress();
      const folder = ownConfig()?.store.journal;
      const result = await withRedis((nodes) =>
        verifyLedger(nodes, {
          here: folder === undefined ? undefined : { folder, waiting: () => chargesWaitingIn(folder) },
          accountIds: flags.account === undefined ? undefined : [flags.account],
          seen({ done, all }, { accounts, entries }) {
            progress.show(`partition ${done} of ${all}: ${accounts} accounts, ${entries} entries`);
          },
        }),
      ).finally(progress.done);
      // A misspelt account must not look like a sound ledger.
      if (flags.account !== undefined && result.accounts === 0 && result.ok) {
        throw new OperatorError(`there is no account ${flags.account}`);
      }
      const { violations, unread } = result;
      print({ json: { ...result }, text: inWords(result), ok: violations.length === 0, unread }, flags);
    });
}

function inWords(result: Verification): string {
  const { accounts, entries } = result;
  const seen = `${numbered(accounts, "account", "accounts")} and ${numbered(entries, "ledger entry", "ledger entries")}`;
  return findingsText(result, "ledger", seen);
}
