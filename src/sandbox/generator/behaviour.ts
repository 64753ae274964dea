/**
 * How to steer the sandbox generator. Each setting below has one name in four spellings:
 *
 * | where                              | spelling of `pollRetryAfterSeconds: 7` | lasts           |
 * | ---------------------------------- | -------------------------------------- | --------------- |
 * | environment of `npm run sandbox`   | `SANDBOX_POLL_RETRY_AFTER_SECONDS=7`   | from the start  |
 * | `PUT /sandbox/behaviour`, JSON     | `{"pollRetryAfterSeconds": 7}`         | to the next PUT |
 * | `behave()` in tests                | `{ pollRetryAfterSeconds: 7 }`         | to `reset()`    |
 * | a directive in a generation's body | `[sandbox: poll-retry-after=7]`        | that task       |
 *
 * Directives may stand anywhere in the JSON text, such as in a prompt; several go into one pair of brackets, separated
 * by spaces or commas. The unit at the end of a name may be left out and follow the value: `duration=500ms`,
 * `delay=2s`. Short words: `fail`, `hang`, `drip`, `reset`, `truncate`, `garbage`, `no-task-id`, `duplicate-task-id`.
 *
 * A generation answered with an error makes no task. One whose answer is broken on its way (`fault`) does make it, for
 * that is the case which a client cannot tell from outside. `docs/sandbox.md` shows examples.
 */

const FAULTS = ["none", "hang", "drip", "reset", "truncate", "garbage"] as const;

export interface Answering {
  status: number;
  code: number;
  message: string;
  retryAfterSeconds: number;
  delayMs: number;
  /** drip: one byte each `dripMs`; reset: TCP reset after the request; truncate: half of the announced body; garbage: 200 and HTML. */
  fault: (typeof FAULTS)[number];
  dripMs: number;
}

interface TaskBehaviour {
  durationMs: number;
  startDelayMs: number;
  /** Spread evenly. */
  failRatio: number;
  /** new: fresh ids; none: missing; duplicate: the last one; else this id. */
  taskId: string;
}

type Prefixed<P extends string> = { [K in keyof Answering as `${P}${Capitalize<K>}`]: Answering[K] };

export type Behaviour = TaskBehaviour & Answering & Prefixed<"poll"> & Prefixed<"upload">;

type RequestKind = "generation" | "poll" | "upload";

const ANSWER_PLAINLY: Answering = {
  status: 200,
  code: 0,
  message: "",
  retryAfterSeconds: 0,
  delayMs: 0,
  fault: "none",
  dripMs: 50,
};

export const DEFAULT_BEHAVIOUR: Readonly<Behaviour> = {
  durationMs: 5_000,
  startDelayMs: 500,
  failRatio: 0,
  taskId: "new",
  ...ANSWER_PLAINLY,
  ...withPrefix("poll"),
  ...withPrefix("upload"),
};

function withPrefix<P extends string>(prefix: P): Prefixed<P> {
  const entries = Object.entries(ANSWER_PLAINLY).map(([name, value]) => [prefixed(prefix, name), value]);
  return Object.fromEntries(entries) as Prefixed<P>;
}

function prefixed(prefix: string, name: string): string {
  return prefix + name.charAt(0).toUpperCase() + name.slice(1);
}

export function answering(behaviour: Behaviour, kind: RequestKind): Answering {
  if (kind === "generation") return behaviour;
  const values = new Map<string, unknown>(Object.entries(behaviour));
  const entries = Object.keys(ANSWER_PLAINLY).map((name) => [name, values.get(prefixed(kind, name))]);
  return Object.fromEntries(entries) as Answering;
}

const WORDS: Readonly<Record<string, Partial<Behaviour>>> = {
  fail: { failRatio: 1 },
  hang: { fault: "hang" },
  drip: { fault: "drip" },
  reset: { fault: "reset" },
  truncate: { fault: "truncate" },
  garbage: { fault: "garbage" },
  "no-task-id": { taskId: "none" },
  "duplicate-task-id": { taskId: "duplicate" },
};

const UNIT_MS = { ms: 1, s: 1000, m: 60_000 } as const;
const UNIT_AT_END = /(Ms|Seconds)$/;

const BY_DIRECTIVE = new Map(
  (Object.keys(DEFAULT_BEHAVIOUR) as Array<keyof Behaviour>).flatMap((name) => [
    [kebab(name), name],
    [kebab(name.replace(UNIT_AT_END, "")), name],
  ]),
);

/** @throws Error that names the invalid directive */
export function readDirectives(text: string): Partial<Behaviour> {
  let found: Partial<Behaviour> = {};
  for (const [, inside] of text.matchAll(/\[sandbox:([^\]]{0,500})\]/g)) {
    for (const item of inside!.split(/[\s,]+/).filter(Boolean)) {
      const [name, value] = splitOnce(item, "=");
      const setting = BY_DIRECTIVE.get(name);
      if (value === undefined && WORDS[name]) found = { ...found, ...WORDS[name] };
      else if (value !== undefined && setting) found = { ...found, ...readSetting(setting, value) };
      else throw new Error(`unknown sandbox directive "${item}"`);
    }
  }
  return found;
}

/** @throws Error that names the invalid setting */
export function readBehaviour(json: unknown): Partial<Behaviour> {
  if (typeof json !== "object" || json === null || Array.isArray(json))
    throw new Error("a JSON object is wanted");
  let found: Partial<Behaviour> = {};
  for (const [name, value] of Object.entries(json)) {
    if (!isSetting(name)) throw new Error(`unknown setting "${name}"`);
    if (typeof value !== typeof DEFAULT_BEHAVIOUR[name]) throw new Error(`${name} has the wrong type`);
    found = { ...found, ...readSetting(name, String(value)) };
  }
  return found;
}

/** @throws Error that names the invalid variable */
export function behaviourFromEnv(env: NodeJS.ProcessEnv): Partial<Behaviour> {
  let found: Partial<Behaviour> = {};
  for (const name of Object.keys(DEFAULT_BEHAVIOUR).filter(isSetting)) {
    const value = env[`SANDBOX_${kebab(name).replaceAll("-", "_").toUpperCase()}`];
    if (value) found = { ...found, ...readSetting(name, value) };
  }
  return found;
}

function readSetting(name: keyof Behaviour, text: string): Partial<Behaviour> {
  if (typeof DEFAULT_BEHAVIOUR[name] === "number") return { [name]: readNumber(name, text) };
  const faults: readonly string[] = FAULTS;
  if (/fault$/i.test(name) && !faults.includes(text))
    throw new Error(`${name} is one of ${FAULTS.join(", ")}`);
  return { [name]: text };
}

function readNumber(name: keyof Behaviour, text: string): number {
  const found = /^(\d+(?:\.\d+)?)(ms|s|m)?$/.exec(text);
  const unit = UNIT_AT_END.exec(name)?.[0];
  if (!found || (found[2] && !unit)) throw new Error(`${name} cannot be "${text}"`);
  const number = Number(found[1]);
  const unitMs = UNIT_MS[found[2] as keyof typeof UNIT_MS];
  const value = unitMs === undefined ? number : (number * unitMs) / (unit === "Ms" ? 1 : 1000);
  if (/status$/i.test(name) && !(Number.isInteger(value) && value >= 200 && value <= 599)) {
    throw new Error(`${name} is an HTTP status from 200 to 599`);
  }
  if (name === "failRatio" && value > 1) throw new Error("failRatio is from 0 to 1");
  return value;
}

function isSetting(name: string): name is keyof Behaviour {
  return Object.hasOwn(DEFAULT_BEHAVIOUR, name);
}

function kebab(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

function splitOnce(text: string, separator: string): [before: string, after: string | undefined] {
  const at = text.indexOf(separator);
  return at < 0 ? [text, undefined] : [text.slice(0, at), text.slice(at + 1)];
}
