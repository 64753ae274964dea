import type { Command } from "commander";
import { processLimits } from "../config/process-bounds.ts";
import { visibleLines } from "../domain/visible-text.ts";
import { checkConfig, hiddenInWords } from "./config.ts";
import { archiveChecks } from "./doctor-archive.ts";
import { certificatesCheck } from "./doctor-certificates.ts";
import { type Check, failed, warning } from "./doctor-check.ts";
import { configCheck, journalCheck } from "./doctor-machine.ts";
import { storeChecks } from "./doctor-redis.ts";
import { runningChecks } from "./doctor-running.ts";
import { upstreamCheck } from "./doctor-upstream.ts";
import { command } from "./options.ts";
import { print } from "./output.ts";
import { startProgress } from "./progress.ts";
import { paint, widthOf, wrapped } from "./terminal.ts";

const SHOWN = {
  ok: { word: "ok  ", style: "green" },
  warning: { word: "warn", style: "yellow" },
  failed: { word: "FAIL", style: "red" },
} as const;

const MEND = "mend the config first";

/** `tollgate doctor` */
export function doctorCommand(): Command {
  return command("doctor", "check everything that a gateway needs, and say what to do").action(
    async (flags: { json?: boolean }) => {
      const progress = startProgress();
      progress.show("looking at the config, Redis and the upstream ...");
      const checks = await allChecks().finally(progress.done);
      const ok = checks.every((one) => one.ok);
      print({ json: { ok, checks }, text: inWords(checks), ok }, flags);
    },
  );
}

async function allChecks(): Promise<Check[]> {
  const { config, hidden, text } = checkConfig();
  const [store, upstream, running] = await Promise.all([
    storeChecks(config),
    config && upstreamCheck(config.upstream),
    runningChecks(config, processLimits().openFiles),
  ]);
  return [
    configCheck(config, text, hiddenInWords(hidden)),
    config ? certificatesCheck(config, Date.now()) : warning("certificates", "not looked at", MEND),
    ...store.checks,
    config ? journalCheck(config.store.journal, store.storeId) : warning("journal", "not looked at", MEND),
    ...(await archiveChecks(config, store.storeId)),
    upstream ?? failed("upstream", "not looked for: the config is not valid", MEND),
    ...running,
  ];
}

function inWords(checks: readonly Check[]): string {
  const names = Math.max(...checks.map(({ name }) => name.length));
  const width = widthOf(process.stdout) ?? Number.POSITIVE_INFINITY;
  const indent = names + 8;
  const lines = checks.map(({ name, status, message, advice }) => {
    const { word, style } = SHOWN[status];
    const finding = wrapped(visibleLines(message), width, indent);
    const todo =
      advice === undefined
        ? ""
        : `\n${" ".repeat(indent)}${wrapped(`-> ${visibleLines(advice)}`, width, indent + 3)}`;
    return `${paint(style, word)}  ${name.padEnd(names)}  ${finding}${todo}`;
  });
  return `${lines.join("\n")}\n\n${summary(checks)}`;
}

function summary(checks: readonly Check[]): string {
  const count = (status: Check["status"]): number => checks.filter((one) => one.status === status).length;
  const [failed, warnings] = [count("failed"), count("warning")];
  if (failed > 0) return `${paint("red", `${failed} to mend`)}, ${warnings} to look at.`;
  if (warnings > 0) return `Nothing to mend, ${paint("yellow", `${warnings} to look at`)}.`;
  return paint("green", "Everything is in order.");
}
