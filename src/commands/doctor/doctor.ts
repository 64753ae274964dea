import { type Command, Option } from "commander";
import { Agent, request } from "undici";
import { archiveChecks } from "../../checks/archive-check.ts";
import { type Check, failed, warning } from "../../checks/check.ts";
import { maintenanceCheck } from "../../checks/gateway-checks.ts";
import {
  certificatesCheck,
  configCheck,
  descriptorsCheck,
  journalCheck,
  proxiesCheck,
} from "../../checks/machine-checks.ts";
import { storeChecks, unusable } from "../../checks/store-checks.ts";
import { upstreamCheck } from "../../checks/upstream-check.ts";
import type { Config } from "../../config/config.ts";
import { hiddenInWords } from "../../config/environment.ts";
import { listInForce } from "../../config/price-lists.ts";
import { processLimits } from "../../config/process-bounds.ts";
import { visible, visibleLines } from "../../domain/operator-texts.ts";
import { readMaintenance } from "../../operations/store/maintenance.ts";
import { OperatorError } from "../../records/operator-error.ts";
import { adminUrl, checkConfig } from "../config.ts";
import { command, spanMs } from "../options.ts";
import { note, print, shownPath } from "../output.ts";
import { redisUrl, tlsCaFor, withAnyLayout } from "../redis.ts";
import { paint, startProgress, widthOf, wrapped } from "../terminal.ts";
import {
  type GenerationRun,
  generationCheck,
  runGeneration,
  type Step,
  TRIED_ENDPOINTS,
  testGeneration,
} from "./doctor-generate.ts";

const SHOWN = {
  ok: { word: "ok  ", style: "green" },
  warn: { word: "warn", style: "yellow" },
  fail: { word: "FAIL", style: "red" },
} as const;

const MEND = "mend the config first";

const GENERATION_TIMEOUT_MS = 600_000;
const METRICS_TIMEOUT_MS = 1000;

const NOT_TRIED =
  "\nNot tried: a generation, its polls and an upload at the upstream. `tollgate doctor --generate` makes one real video.";

interface DoctorFlags {
  json?: boolean;
  generate?: boolean;
  timeout?: number;
  endpoint?: string;
}

export function doctorCommand(): Command {
  return command("doctor", "check everything that a gateway needs, and say what to do")
    .option("--generate", "also make one real video at the upstream, which may bill it")
    .option(
      "--timeout <duration>",
      "with --generate: how long to wait for the video, such as 90s; 10m when left out",
      spanMs("1s", "24h"),
    )
    .addOption(
      new Option(
        "--endpoint <endpoint>",
        "with --generate: which generation; the cheapest when left out",
      ).choices(TRIED_ENDPOINTS),
    )
    .action(async (flags: DoctorFlags) => {
      if (flags.timeout !== undefined && !flags.generate)
        throw new OperatorError("--timeout belongs to --generate");
      if (flags.endpoint !== undefined && !flags.generate)
        throw new OperatorError("--endpoint belongs to --generate");
      const progress = startProgress();
      progress.show("looking at the config, Redis and the upstream ...");
      const { config, checks } = await allChecks().finally(progress.done);
      if (!flags.generate) {
        printChecks(checks, flags);
        if (!flags.json) print({ json: {}, text: NOT_TRIED }, flags);
        return;
      }
      if (!config) {
        return printChecks(
          [...checks, failed("generation", "not made: the config is not valid", MEND)],
          flags,
        );
      }
      if (!flags.json) printChecks(checks, flags);
      const { check, generation } = await generate(config, flags);
      if (flags.json) printChecks([...checks, check], flags, generation);
      else print({ json: {}, text: `\n${inWords([check])}`, ok: check.ok }, flags);
    });
}

function printChecks(checks: readonly Check[], flags: DoctorFlags, generation?: object): void {
  const ok = checks.every((one) => one.ok);
  const text = `${inWords(checks)}\n\n${summary(checks)}`;
  print({ json: { ok, checks, ...(generation && { generation }) }, text, ok }, flags);
}

/** Makes one real video. Each step is shown as it is seen; with --json on standard error. */
async function generate(
  config: Config,
  { json, timeout = GENERATION_TIMEOUT_MS, endpoint: wanted }: DoctorFlags,
) {
  const show = (text: string): void => (json ? note(text) : void process.stdout.write(`${text}\n`));
  const { host } = new URL(config.upstream.url);
  const generation = testGeneration(
    config,
    TRIED_ENDPOINTS.find((one) => one === wanted),
  );
  const { endpoint, text, price } = generation;
  show(
    `\nMaking one real video at ${host}: ${endpoint} ${text}\nIts price is ${price} credits by ${shownPath(listInForce(config).file)}. No customer's account is charged; the upstream may bill you.\n`,
  );
  const run = await runGeneration(config, generation, {
    timeoutMs: timeout,
    onStep: (step) => show(inLine(step)),
  });
  return { check: generationCheck(run, host), generation: { host, endpoint, price, ...inJson(run) } };
}

const inLine = ({ at, http_statuses, finding }: Step): string =>
  visible([at, ...http_statuses.map((status) => `HTTP ${status}`), finding].join("  "));

function inJson({ requestId, end, tookMs, polls, steps }: GenerationRun) {
  return {
    request_id: requestId,
    task_id: "taskId" in end ? end.taskId : null,
    took_ms: tookMs,
    polls,
    steps,
  };
}

async function allChecks(): Promise<{ config: Config | undefined; checks: Check[] }> {
  const { config, hidden, text } = checkConfig();
  const [store, maintenance, upstream, running] = await Promise.all([
    ownStoreChecks(config),
    maintenanceChecks(),
    config && upstreamCheck(config.upstream, true),
    runningChecks(config, processLimits().openFiles),
  ]);
  const checks = [
    configCheck(config, text, hiddenInWords(hidden)),
    config ? certificatesCheck(config, Date.now()) : warning("certificates", "not looked at", MEND),
    ...store.checks,
    ...maintenance,
    config ? journalCheck(config.store.journal, store.storeId) : warning("journal", "not looked at", MEND),
    ...(await archiveChecks(config, store.storeId)),
    upstream ?? failed("upstream", "not looked for: the config is not valid", MEND),
    ...running,
  ];
  return { config, checks };
}

async function ownStoreChecks(config: Config | undefined): ReturnType<typeof storeChecks> {
  try {
    const url = redisUrl();
    return await storeChecks({ redisUrl: url, tlsCa: tlsCaFor(url) }, withAnyLayout, config);
  } catch (error) {
    return { checks: [unusable(error)] };
  }
}

/** Nothing without maintenance, or where the store cannot be asked: its own checks say why. */
async function maintenanceChecks(): Promise<Check[]> {
  const maintenance = await withAnyLayout(readMaintenance).catch(() => undefined);
  return maintenance ? [maintenanceCheck(maintenance.sinceMs)] : [];
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
  return lines.join("\n");
}

function summary(checks: readonly Check[]): string {
  const count = (status: Check["status"]): number => checks.filter((one) => one.status === status).length;
  const [failed, warnings] = [count("fail"), count("warn")];
  if (failed > 0) return `${paint("red", `${failed} to mend`)}, ${warnings} to look at.`;
  if (warnings > 0) return `Nothing to mend, ${paint("yellow", `${warnings} to look at`)}.`;
  return paint("green", "Everything is in order.");
}

/** @param openFiles files and sockets that this process may open: what is known where no gateway runs */
async function runningChecks(config: Config | undefined, openFiles: number): Promise<Check[]> {
  const page = config && (await readMetrics(config.admin));
  const running = Number(/^process_max_fds (\d+)/m.exec(page ?? "")?.[1] ?? 0);
  const whose = running > 0 ? "the running gateway" : "a gateway started like this command";
  return [
    descriptorsCheck(running || openFiles, whose),
    proxiesCheck(
      page === undefined ? undefined : Number(/^tollgate_untrusted_proxy_total (\d+)/m.exec(page)?.[1] ?? 0),
    ),
  ];
}

/** The metrics page of a running gateway; undefined where none answers, or where it wants a client certificate. */
async function readMetrics(admin: Config["admin"]): Promise<string | undefined> {
  // Its certificate is made for a name, and this is an address. Nothing is sent that it could keep.
  const dispatcher = new Agent({ connect: { rejectUnauthorized: false } });
  try {
    const signal = AbortSignal.timeout(METRICS_TIMEOUT_MS);
    const { body } = await request(`${adminUrl(admin)}/metrics`, { dispatcher, signal });
    return await body.text();
  } catch {
    return undefined;
  } finally {
    await dispatcher.destroy();
  }
}
