import type { Control } from "./controls.ts";
import { taskEnds } from "./task-ends.ts";
import { unknownOutcomes } from "./unknown-outcomes.ts";
import { upstream } from "./upstream.ts";

const misbehaving =
  (...kinds: string[]): Control["run"] =>
  (options) =>
    upstream.run(options, { requestsEach: 6, width: 8, kinds });
const otherStates: Control["run"] = (options) =>
  taskEnds.run(options, { maxAgeMs: 3000, tasksEach: 2, only: ["other states"] });

const unclear = {
  run: (options) => unknownOutcomes.run(options, { each: 1 }),
  caughtBy: "unknown outcomes keep their hold, are bounded and logged",
} satisfies Pick<Control, "run" | "caughtBy">;

/** Mistakes in reading what the upstream answers. */
export const UPSTREAM_CONTROLS: readonly Control[] = [
  {
    name: "a success that is not HTTP 200 is unclear",
    patches: [
      {
        file: "src/upstream/answer.ts",
        from: "(status: number): boolean => status >= 200 && status < 300;",
        to: "(status: number): boolean => status === 200;",
      },
    ],
    run: misbehaving("succeeds_with_201", "succeeds_with_202"),
    caughtBy: "the upstream's own log agrees",
    violation: /was accepted and is not charged/,
  },
  {
    name: "a task id beside a code that is not 200 is a refusal",
    patches: [
      {
        file: "src/upstream/adapters/envelope.ts",
        from: "const isBound = (isObject(json?.data) && json.data.task_id === taskId) || isSuccessCode(codeOf(json));",
        to: "const isBound = json?.code === 200;",
      },
      {
        file: "src/upstream/adapters/envelope.ts",
        from: "if (!namesTask && isRefusal(status, json))",
        to: 'if (typeof json?.code === "number" && json.code !== 200)',
      },
    ],
    run: misbehaving("succeeds_with_code_0"),
    caughtBy: "the upstream's own log agrees",
    violation: /was accepted and is not charged/,
  },
  {
    name: "a task id beside a refusal is thrown away",
    patches: [
      {
        file: "src/upstream/upstream.ts",
        from: "const described = () => describeAnswer(answer, json, sent);",
        to: 'const described = () => "";',
      },
    ],
    run: misbehaving("refuses_409_with_a_task_id", "fails_500_with_a_task_id"),
    caughtBy: "unknown outcomes keep their hold, are bounded and logged",
    violation: /the log does not name/,
  },
  {
    name: "a time that no double holds ends the reading of an answer",
    patches: [
      {
        file: "src/upstream/answer.ts",
        from: 'if (typeof value !== "string" && typeof value !== "number") return undefined;',
        to: "",
      },
    ],
    run: misbehaving("tells_times_in_nanoseconds"),
    caughtBy: "the upstream's own log agrees",
    violation: /was accepted and is not charged/,
  },
  {
    name: "an unasked 100 Continue ends the exchange",
    patches: [
      {
        file: "src/upstream/json-client.ts",
        from: "withoutInterimAnswers(result[1])",
        to: "result[1]",
      },
    ],
    run: misbehaving("begins_with_100"),
    caughtBy: "the upstream's own log agrees",
    violation: /was accepted and is not charged/,
  },
  {
    name: "only the first interim answer is skipped",
    patches: [
      { file: "src/upstream/json-client.ts", from: "end = interimEnd(bytes), skipped++", to: "end = 0" },
      {
        file: "src/upstream/json-client.ts",
        from: "bytes.length < STATUS_AT + 3 || INTERIM.test(statusLine(bytes));",
        to: "bytes.length < STATUS_AT + 3;",
      },
    ],
    run: misbehaving("begins_with_100_102_103_100"),
    caughtBy: "the upstream's own log agrees",
    violation: /was accepted and is not charged/,
  },
  {
    name: "words of other APIs for states are not known",
    patches: [
      {
        file: "src/upstream/answer.ts",
        from: "return Object.hasOwn(STATUS_WORDS, word) ?",
        to: 'return word === "completed" || word === "failed" ?',
      },
    ],
    run: otherStates,
    caughtBy: "tasks end on evidence",
    violation: /though the upstream had told that it/,
  },
  {
    name: "a state that is not known is no answer",
    patches: [
      {
        file: "src/upstream/poll-answer.ts",
        from: "if (reading.status === undefined) return",
        to: 'if (reading.status === undefined) return failed("no known status"); else if (Date.now() === 0) return',
      },
    ],
    run: otherStates,
    // Polls that fail are repeated so rarely that none may fall between the maximum age and twice that.
    caughtBy: "faults struck as planned",
    violation: /a poll of a task that names_a_state_that_nobody_knows was answered 502/,
  },
  {
    name: "a task has completed though it has no video",
    patches: [
      {
        file: "src/upstream/answer.ts",
        from: 'if (status !== "completed" || hasVideo) return',
        to: "if (status) return",
      },
    ],
    run: otherStates,
    caughtBy: "failed tasks refunded exactly once",
    violation: /ended as completed, which the upstream never said/,
  },
  {
    name: "the credits of a storyboard come back before its callback",
    patches: [
      {
        file: "src/gateway/generate.ts",
        from: "  if (hasCallback) return Math.min(tasks.maxAgeMs, tasks.retentionMs);\n",
        to: "",
      },
    ],
    ...unclear,
    violation: /has a callBackUrl and was held for/,
  },
  {
    name: "an account has as many unknown outcomes as it likes",
    patches: [
      {
        file: "lua/generations/admit.lua",
        from: "if blocked_until and now < tonumber(blocked_until) then",
        to: "if false then",
      },
    ],
    ...unclear,
    violation: /went upstream beside/,
  },
  {
    name: "a key whose slots wait for unknown outcomes is told to come back soon",
    patches: [
      {
        file: "src/gateway/admission-refusals.ts",
        from: "return clearedInMs === 0",
        to: "return clearedInMs >= 0",
      },
    ],
    run: unclear.run,
    caughtBy: "faults struck as planned",
    violation: /was told to come back after/,
  },
];
