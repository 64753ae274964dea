import { type Command, InvalidArgumentError } from "commander";
import { correctionOfCharges } from "../admin/api/routes/corrections.ts";
import { operationCommand } from "./operation-command.ts";
import { table } from "./terminal.ts";

interface Price {
  endpoint: string;
  charged: number;
  correct: number;
}

export const correctCommand = (): Command =>
  operationCommand(correctionOfCharges, {
    name: "correct",
    about: "give back what a wrong price charged too much, to all accounts, once per charge",
    options: {
      "--from <time>": "when the wrong price began, such as 2026-11-01T10:00:00Z",
      "--to <time>": "when it ended, itself not included",
      "--prices <list>": {
        about: "endpoint:charged:correct, with commas between, such as gen2/text-to-video:20:10",
        parse: pricesOf,
      },
      "--price-list <file>": "only charges by this price file, as transactions name it",
      "--reference <text>": "your own name of the correction; counts once per charge",
      "--reason <text>": "why; customers see it beside the transaction",
      "--dry-run": "change nothing, and list the charges",
      "--after <cursor>": "where an earlier call ended",
    },
    show({ shown, next, ...numbers }, { body }) {
      const { dry_run: isDryRun = false } = body as { dry_run?: boolean };
      const rows = shown.map(({ entry, credits }) => [
        ...[entry.accountId, entry.requestId, entry.endpoint, -entry.amount, credits],
      ]);
      const { charges, corrected, repeated, refunded, running, credits } = numbers;
      const did = isDryRun
        ? `${charges} charges were wrong: ${credits} credits would be given back. Nothing is changed.`
        : `${corrected} of ${charges} charges corrected: ${credits} credits given back.`;
      const others = `Before: ${repeated}; refunded or without anything left: ${refunded}; tasks that still run: ${running}.`;
      const text = [
        table(["ACCOUNT", "REQUEST", "ENDPOINT", "CHARGED", "GIVES BACK"], rows, { gives: ["ENDPOINT"] }),
        `${did} ${others}`,
        ...(running > 0 ? ["Repeat the command when those have ended, with the same reference."] : []),
      ].join("\n");
      return { text, more: next };
    },
  });

function pricesOf(text: string): Price[] {
  return text.split(",").map((part) => {
    const [, endpoint = "", charged, correct] = /^\s*([^:\s]+):(\d{1,13}):(\d{1,13})\s*$/.exec(part) ?? [];
    if (endpoint === "")
      throw new InvalidArgumentError("It must be endpoint:charged:correct, with commas between.");
    return { endpoint, charged: Number(charged), correct: Number(correct) };
  });
}
