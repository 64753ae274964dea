import type { Adapter, AdapterResponse } from "./adapter.ts";
import { ENVELOPE } from "./adapters/envelope.ts";
import { type Answer, type Envelope, excerptOf } from "./answer.ts";

/** An adapter as the configuration names it. Plain data but for the function, which tells two versions of a module apart by `id`. */
export interface AdapterChoice {
  readonly name: string;
  /** The name, or the file of a module and a digest of its content. */
  readonly id: string;
  readonly adapter: () => Adapter;
  /** Valid for the adapter, with its defaults. */
  readonly options: Readonly<Record<string, unknown>>;
}

export const ADAPTER_FUNCTIONS = [
  "create",
  "created",
  "poll",
  "polled",
  "result",
  "upload",
  "uploaded",
] as const;
type AdapterFunction = (typeof ADAPTER_FUNCTIONS)[number];

/** Told what an adapter does that it should not. */
export interface AdapterObserver {
  fault(adapter: string, called: AdapterFunction): void;
  slow(adapter: string, called: AdapterFunction, tookMs: number): void;
}

/** An adapter threw, or returned none of the shapes in adapter.ts. `detail` is for the log. */
export interface AdapterFault {
  outcome: "adapter_fault";
  detail: string;
}

/** Thrown for a result of an adapter that cannot be used; the message says what is wrong with it. */
export class AdapterMistake extends Error {}

/**
 * What a function of an adapter returned. A promise that is rejected later would end the process.
 * @throws AdapterMistake for a promise
 */
export function returned<Result>(result: Result): Result {
  if (!(result instanceof Promise)) return result;
  result.catch(() => undefined);
  throw new AdapterMistake("returned a promise");
}

/** Functions of an adapter are synchronous: while one runs, nothing else does. */
const SLOW_MS = 50;
/** Of a stack's lines. The expression below is not linear, and the message before them may be an answer. */
const STACK_CHARS_MAX = 4096;
/** The first place of a stack that is in a module. */
const STACK_PLACE = /([\w.-]+)\.[0-9a-f]{16}(\.[cm]?[jt]s:\d+)|([\w.-]+\.[cm]?[jt]s:\d+)/;

/** An adapter with its options. Its functions are called through `call`, which never throws. */
export class Dialect {
  readonly name: string;
  readonly adapter: Adapter;
  readonly options: AdapterChoice["options"];
  readonly #observer: AdapterObserver | undefined;
  /** The default adapter is known to be fast, and each reading of the clock would cost every request. */
  readonly #isTimed: boolean;

  constructor({ name, adapter, options }: AdapterChoice, observer?: AdapterObserver) {
    this.name = name;
    this.adapter = adapter();
    this.#isTimed = this.adapter !== ENVELOPE;
    this.options = options;
    this.#observer = observer;
  }

  /**
   * Calls a function of the adapter.
   * @param sent the request's body, of which nothing must get into the log
   * @param use calls it, and reads what it returned
   */
  call<Result>(called: AdapterFunction, sent: string, use: () => Result): Result | AdapterFault {
    const fromMs = this.#isTimed ? performance.now() : 0;
    try {
      return use();
    } catch (error) {
      this.#observer?.fault(this.name, called);
      const detail = `adapter ${this.name}: ${called} ${inWords(error, sent)}`;
      return { outcome: "adapter_fault", detail };
    } finally {
      const tookMs = this.#isTimed ? performance.now() - fromMs : 0;
      if (tookMs > SLOW_MS) this.#observer?.slow(this.name, called, tookMs);
    }
  }
}

/** Anything may be thrown. */
function inWords(error: unknown, sent: string): string {
  try {
    if (error instanceof AdapterMistake) return error.message;
    if (!(error instanceof Error)) return "threw a value that is no error";
    const [, module, line, file] = STACK_PLACE.exec(stackLines(error)) ?? [];
    const place = file ?? (module === undefined ? undefined : `${module}${line}`);
    const text = excerptOf(`${error.name}: ${error.message}`, sent);
    return place === undefined ? `threw ${text}` : `threw ${text} (${place})`;
  } catch {
    return "threw a value that cannot be read";
  }
}

/** Without the message, of which only an excerpt may get into the log. */
function stackLines({ message, stack = "" }: Error): string {
  const messageAt = stack.indexOf(message);
  const at = stack.indexOf("\n    at ", messageAt === -1 ? 0 : messageAt + message.length);
  return at === -1 ? "" : stack.slice(at, at + STACK_CHARS_MAX);
}

export const ENVELOPE_CHOICE: AdapterChoice = {
  name: ENVELOPE.name,
  id: ENVELOPE.name,
  adapter: () => ENVELOPE,
  options: {},
};

/** Without an observer: for tests and tools. */
export const ENVELOPE_DIALECT = new Dialect(ENVELOPE_CHOICE);

export const responseOf = ({ status, body, retryAfter }: Answer, json: Envelope): AdapterResponse => ({
  status,
  body,
  json,
  retryAfter,
});
