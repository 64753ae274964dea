import { readFileSync } from "node:fs";
import path from "node:path";
import { loadAdapterModule, ModuleMistake } from "../config/adapter-module.ts";
import { readOptions } from "../config/adapters.ts";
import { readFailure } from "../config/yaml-file.ts";
import { GENERATION_ENDPOINTS, type GenerationEndpoint } from "../domain/endpoints.ts";
import { validateGeneration } from "../domain/generation.ts";
import { isObject, parseObject } from "../domain/json.ts";
import { OperatorError } from "../records/operator-error.ts";
import type { Adapter, AdapterResponse, AnswerRow, PolledTask } from "../upstream/adapter.ts";
import { type CheckedRequest, checkForm, checkRequest, Dialect } from "../upstream/dialect.ts";
import { readPoll, readResult } from "../upstream/poll-answer.ts";
import { interpretAnswer } from "../upstream/upload-stream.ts";
import { createRequest, readGeneration } from "../upstream/upstream.ts";
import { command, group } from "./options.ts";
import { type CommandOutput, print } from "./output.ts";

export const adapterCommand = group("adapter", "adapters of your own, for the upstream", [
  () =>
    command("test", "run an adapter's table of answers, and show what it would send")
      .argument("<file>", "the module, .ts, .js or .mjs")
      .option("--options <json>", "options as in upstream.options; the defaults when left out")
      .action((file: string, flags: { json?: boolean; options?: string }) =>
        print(tested(file, flags.options), flags),
      ),
]);

interface Finding {
  what: string;
  ok: boolean;
  detail: string;
  /** The gateway's own reading, where that may not be meant. */
  note?: string;
}

function tested(name: string, optionsText: string | undefined): CommandOutput {
  const { adapter, answers, id } = loaded(path.resolve(name), name);
  const given = optionsText === undefined ? {} : parseObject(optionsText);
  if (given === undefined) throw new OperatorError("--options is no JSON object");
  const dialect = new Dialect({
    name: adapter.name,
    id,
    adapter: () => adapter,
    options: optionsFor(adapter, given),
  });
  const rows = Array.isArray(answers) ? (answers as AnswerRow[]) : [];
  const findings = [
    ...GENERATION_ENDPOINTS.flatMap((endpoint) => dryRun(dialect, endpoint)),
    dryUpload(dialect),
    ...rows.map((row, at) => answerFinding(adapter, row, at)),
  ];
  const failures = findings.filter(({ ok }) => !ok).length;
  const lines = findings.flatMap(({ what, ok, detail, note }) => [
    `${ok ? "ok  " : "FAIL"}  ${what}: ${detail}`,
    ...(note === undefined ? [] : [`note  ${what}: ${note}`]),
  ]);
  if (rows.length === 0)
    lines.push("It exports no `answers`: a table of the upstream's answers would be run here.");
  return {
    json: { ok: failures === 0, adapter: adapter.name, findings },
    text: [
      ...lines,
      "",
      failures === 0 ? "No mistake found." : `${failures} of ${findings.length} failed.`,
    ].join("\n"),
    ok: failures === 0,
  };
}

function loaded(file: string, name: string) {
  try {
    return loadAdapterModule(file, readFileSync(file));
  } catch (error) {
    if (!(error instanceof ModuleMistake))
      throw new OperatorError(`${name} cannot be read: ${readFailure(error)}`);
    throw new OperatorError(`${name}${error.line === undefined ? "" : `:${error.line}`}: ${error.message}`);
  }
}

function optionsFor(adapter: Adapter, given: unknown): Readonly<Record<string, unknown>> {
  const { value, problems } = readOptions(adapter, given);
  if (value) return value;
  throw new OperatorError(
    problems.map(({ keys, message }) => `options.${keys.join(".")}: ${message}`).join("\n"),
  );
}

const PROMPT = { prompt: "A calm sea at sunrise" };
const IMAGE = { ...PROMPT, imageUrl: "https://images.example.com/1.png" };
const SOURCE_HOST = "https://videos.example.com";
export const SAMPLE_BODIES: Readonly<Record<GenerationEndpoint, object>> = {
  "gen2/text-to-video": PROMPT,
  "gen2/image-to-video": IMAGE,
  "gen2-pro/text-to-video": PROMPT,
  "gen2-pro/image-to-video": IMAGE,
  "gen2/watermark-remove": { videoUrl: `${SOURCE_HOST}/1` },
  "gen2-pro/storyboard": { nFrames: "10", shots: [{ Scene: PROMPT.prompt, duration: 10 }] },
};
const TASK_ID = "task-1";

function dryRun(dialect: Dialect, endpoint: GenerationEndpoint): Finding[] {
  const validation = validateGeneration(endpoint, SAMPLE_BODIES[endpoint], SOURCE_HOST);
  if (!validation.ok) throw new Error(`the body for ${endpoint} is not valid`);
  const { body, text } = validation;
  const created = createRequest(dialect, { endpoint, body: { ...body }, text });
  if ("unsupported" in created) {
    const why = created.unsupported.map((one) => `${one.path} ${one.message}`.trim()).join("; ");
    return [{ what: `create ${endpoint}`, ok: true, detail: `unsupported, answered with 400: ${why}` }];
  }
  const task = { taskId: TASK_ID, endpoint };
  const polled = dialect.call("poll", "", () => checkRequest(dialect.adapter.poll(task, dialect.options)));
  return [requestFinding(`create ${endpoint}`, created), requestFinding(`poll ${endpoint}`, polled)];
}

function requestFinding(
  what: string,
  request: CheckedRequest | { outcome: string; detail: string },
): Finding {
  if ("outcome" in request) return { what, ok: false, detail: request.detail };
  const { method, path: to, headers, body } = request;
  const detail = [`${method} ${to}`, ...(headers ? [JSON.stringify(headers)] : []), ...(body ? [body] : [])];
  return { what, ok: true, detail: detail.join(" ") };
}

function dryUpload(dialect: Dialect): Finding {
  const { adapter, options } = dialect;
  if (adapter.upload === undefined)
    return { what: "upload", ok: true, detail: "none: uploads are answered with 404" };
  const form = dialect.call("upload", "", () => checkForm(adapter.upload!(options, "unique-name")));
  if ("outcome" in form) return { what: "upload", ok: false, detail: form.detail };
  const fields = form.fields.map(([field, value]) => `${field}=${value}`);
  return {
    what: "upload",
    ok: true,
    detail: `POST ${form.path} ${[...fields, `${form.fileField}=(file)`].join(", ")}`,
  };
}

function answerFinding(adapter: Adapter, row: AnswerRow, at: number): Finding {
  const what = `answers[${at}] ${String(row?.call)}`;
  try {
    const result = resultOf(adapter, row);
    const wrong = difference(result, row.expect, "");
    if (wrong !== undefined)
      return { what, ok: false, detail: `${wrong}; it returned ${JSON.stringify(result)}` };
    const { fault, note } = gatewaysReading(adapter, row);
    if (fault !== undefined) return { what, ok: false, detail: fault };
    return { what, ok: true, detail: JSON.stringify(row.expect), ...(note !== undefined && { note }) };
  } catch (error) {
    return { what, ok: false, detail: `threw ${String(error)}` };
  }
}

function resultOf(adapter: Adapter, { call, response, task, options: given }: AnswerRow): unknown {
  const options = optionsFor(adapter, given ?? {});
  const { status = 200, body = "", retryAfter, headers = {} } = response;
  const text = typeof body === "string" ? body : JSON.stringify(body);
  const json = parseObject(text);
  const answer: AdapterResponse = { status, body: text, json, retryAfter };
  const polledTask: PolledTask = task ?? { taskId: TASK_ID, endpoint: "gen2/text-to-video" };
  switch (call) {
    case "created":
      return adapter.created(answer, options);
    case "polled":
      return adapter.polled(answer, polledTask, options);
    case "result":
      return adapter.result?.(answer, polledTask, options);
    case "uploaded":
      return adapter.uploaded?.(answer, options);
    case "callback":
      return adapter.callback?.({ headers, body: text, json }, options);
    default:
      throw new Error(`${String(call)} is none of created, polled, result, uploaded and callback`);
  }
}

/** The gateway's own reading of an answer: a result that it cannot use, or a state that it does not take as the adapter means it. */
function gatewaysReading(
  adapter: Adapter,
  { call, response, task, options: given }: AnswerRow,
): { fault?: string; note?: string } {
  let isFault = false;
  const choice = {
    name: adapter.name,
    id: "",
    adapter: () => adapter,
    options: optionsFor(adapter, given ?? {}),
  };
  const fault = () => {
    isFault = true;
  };
  const dialect = new Dialect(choice, { fault, slow: () => {} });
  const { status = 200, body = "", retryAfter } = response;
  const answer = { status, body: typeof body === "string" ? body : JSON.stringify(body), retryAfter };
  const polledTask = task ?? { taskId: TASK_ID, endpoint: "gen2/text-to-video" };
  const readings = {
    created: () => readGeneration(answer, "", undefined, dialect),
    polled: () => readPoll(answer, polledTask, dialect),
    result: () => readResult(answer, polledTask, dialect),
    uploaded: () => interpretAnswer(answer, dialect),
  };
  if (call === "callback") return {};
  const reading = readings[call]();
  if (isFault) return { fault: "detail" in reading ? reading.detail : "cannot be used" };
  if (reading.outcome === "unknown_status")
    return { note: `the gateway does not know ${reading.word}: say in upstream.statuses what it means` };
  if ("lacksVideo" in reading) return { note: "without a usable video_url it counts as processing" };
  return {};
}

/** The first member that is not as expected; further members of the result are not compared. */
function difference(result: unknown, expected: unknown, at: string): string | undefined {
  if (isObject(expected) && isObject(result)) {
    for (const [name, value] of Object.entries(expected)) {
      const found = difference(result[name], value, `${at}/${name}`);
      if (found !== undefined) return found;
    }
    return undefined;
  }
  if (JSON.stringify(result) === JSON.stringify(expected)) return undefined;
  return `${at === "" ? "the result" : at} is ${JSON.stringify(result)}, not ${JSON.stringify(expected)}`;
}
