import { type Behaviour, DEFAULT_BEHAVIOUR } from "./behaviour.ts";
import type { Callbacks } from "./callbacks.ts";
import type { RequestRecorder } from "./requests.ts";
import type { TaskStore } from "./tasks.ts";
import type { UploadStore } from "./uploads.ts";

export interface GeneratorOptions {
  /** Default 127.0.0.1. */
  host?: string;
  /** Default: a free one. */
  port?: number;
  /** Of the HTTPS twin, at which uploaded images are reached; default: a free one. */
  tlsPort?: number;
  /** The one accepted bearer token; default: any. */
  apiKey?: string | undefined;
  /** Settings from the start on; `reset()` comes back to them. */
  behaviour?: Partial<Behaviour>;
  /** Unix milliseconds; default the system clock. */
  now?: () => number;
  /** Base of the URLs in answers, without a slash at the end; default, and for uploads unless HTTPS: this server. */
  publicUrl?: string | undefined;
  /** Default 100,000; the oldest give way. */
  tasksMax?: number;
  /** Wait before the second try of a callback; doubled each time; default 1000. */
  callbackRetryMs?: number;
}

/** What the routes work on. */
export interface State {
  options: GeneratorOptions;
  behaviour: Behaviour;
  recorder: RequestRecorder;
  tasks: TaskStore;
  uploads: UploadStore;
  callbacks: Callbacks;
  now: () => number;
  uploadBase: string;
}

/** Replaces what was steered before; the rest is as from the start. */
export function steer(state: State, changes: Partial<Behaviour>): void {
  state.behaviour = { ...DEFAULT_BEHAVIOUR, ...state.options.behaviour, ...changes };
}
