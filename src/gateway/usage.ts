import { type HandlerResult, success } from "../domain/envelope.ts";
import { type Problem, type Refusal, refuse } from "../domain/errors.ts";
import { calendarProblem, dayText, isDay } from "../domain/moments.ts";
import { DETAILS_MAX, unknownName } from "../domain/problems.ts";
import { type RequestContext, storeStep } from "./http-exchange.ts";
import { inspectKey, refuseCounted } from "./inspect-key.ts";

const GROUPS = ["day", "endpoint", "key"] as const;
const NAMES = ["from", "to", "group_by"] as const;
const DAY_MS = 86_400_000;
/** Days that one answer covers; the default ends today. */
const USAGE_DAYS_MAX = 92;
const DAYS_DEFAULT = 31;

/** Days by UTC, both inclusive. */
export interface UsageQuestion {
  from: string;
  to: string;
  by: (typeof GROUPS)[number];
}

/** Usage of an account, as the answer has it. `since`: what was before it is not counted; null if all is. */
export interface UsageAnswer {
  rows: readonly object[];
  since: string | null;
}

/** GET /usage: what the key's account has used. It is rolled up about once a second, and read beside the requests. */
export async function usage(context: RequestContext): Promise<HandlerResult> {
  const { gateway, exchange, key } = context;
  const question = questionOf(exchange.req.url ?? "", gateway.store.nowMs(key.partition));
  if ("name" in question) return refuseCounted(context, question);
  const refused = await inspectKey(context);
  if (refused) return refused;
  const { rows, since } = await storeStep(context, "USAGE", gateway.usageOf(key.accountId, question));
  return success(JSON.stringify({ ...question, by: undefined, group_by: question.by, since, rows }));
}

/** @returns the refusal of a query that breaks a rule */
function questionOf(url: string, nowMs: number): UsageQuestion | Refusal {
  const at = url.indexOf("?");
  const query = new URLSearchParams(at < 0 ? "" : url.slice(at + 1));
  const problems: Problem[] = [];
  for (const name of new Set(query.keys())) {
    const isKnown = (NAMES as readonly string[]).includes(name);
    if (!isKnown) problems.push({ ...unknownName("", name, NAMES), path: "" });
    else if (query.getAll(name).length > 1) problems.push({ path: "", message: `${name} is given twice` });
  }
  const to = query.get("to") ?? dayText(nowMs);
  const lastMs = isDay(to) ? Date.parse(to) : nowMs;
  const from = query.get("from") ?? dayText(lastMs - (DAYS_DEFAULT - 1) * DAY_MS);
  for (const [name, day] of Object.entries({ from, to }))
    if (!isDay(day)) {
      const why = calendarProblem(day);
      const rule = `${name} must be a day such as 2026-10-31`;
      problems.push({ path: "", message: why === undefined ? rule : `${rule}; ${why}` });
    }
  const by = GROUPS.find((group) => group === (query.get("group_by") ?? "day"));
  if (by === undefined) problems.push({ path: "", message: `group_by must be one of ${GROUPS.join(", ")}` });
  if (problems.length === 0) {
    const days = (Date.parse(to) - Date.parse(from)) / DAY_MS + 1;
    if (days < 1) problems.push({ path: "", message: "from must not come after to" });
    if (days > USAGE_DAYS_MAX)
      problems.push({ path: "", message: `at most ${USAGE_DAYS_MAX} days, from and to included` });
  }
  const [first] = problems;
  if (first === undefined) return { from, to, by: by! };
  const details = problems.slice(0, DETAILS_MAX);
  return refuse("invalid_request", { text: `Invalid request: ${first.message}`, details });
}
