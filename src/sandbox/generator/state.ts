import { type Behaviour, DEFAULT_BEHAVIOUR } from "./behaviour.ts";
import type { Callbacks } from "./callbacks.ts";
import type { Dialect, DialectName } from "./generator-dialect.ts";
import type { TaskStore } from "./generator-tasks.ts";
import type { RequestRecorder } from "./request-log.ts";
import type { UploadStore } from "./uploads.ts";

export interface GeneratorOptions {
  /** `envelope` by default. */
  as?: DialectName | undefined;
  host?: string;
  port?: number;
  tlsPort?: number;
  apiKey?: string | undefined;
  behaviour?: Partial<Behaviour>;
  now?: () => number;
  publicUrl?: string | undefined;
  tasksMax?: number;
  callbackRetryMs?: number;
}

export interface State {
  options: GeneratorOptions;
  dialect: Dialect;
  behaviour: Behaviour;
  recorder: RequestRecorder;
  tasks: TaskStore;
  uploads: UploadStore;
  callbacks: Callbacks;
  now: () => number;
  uploadBase: string;
}

export function steer(state: State, changes: Partial<Behaviour>): void {
  state.behaviour = { ...DEFAULT_BEHAVIOUR, ...state.options.behaviour, ...changes };
}
