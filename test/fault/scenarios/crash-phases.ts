/** Steps that can be seen from outside the gateway: at the proxy, at the upstream, at the client. */
export type PhaseName =
  | "admit_arrived"
  | "admit_replied"
  | "bind_arrived"
  | "bind_replied"
  | "void_arrived"
  | "void_replied"
  | "observe_arrived"
  | "observe_replied"
  | "upstream_connected"
  | "upstream_read"
  | "upstream_answered"
  | "poll_read"
  /** The answer's first bytes are there and are withheld from the client. */
  | "response"
  /** The client has its answer. */
  | "answer";

export interface Phase {
  name: string;
  /** The last step that has happened when the kill comes. */
  step: PhaseName;
  /** How the upstream answers. */
  kind: "ok" | "refuses_400";
  /** Of a poll of a finished task instead of a generation. */
  polls: boolean;
  /** Killed from within the hook, before anything else runs. */
  immediate: boolean;
  /** Replies to this script never come, so that the gateway's command times out. */
  withholds: "admit" | "bind" | "void" | "";
}

const phase = (name: string, step: PhaseName, more: Partial<Phase> = {}): Phase => ({
  name,
  step,
  kind: "ok",
  polls: false,
  immediate: false,
  withholds: "",
  ...more,
});

const refused = { kind: "refuses_400" } as const;
const polled = { polls: true } as const;

export const PHASES: readonly Phase[] = [
  phase("ADMIT at the store, not run", "admit_arrived"),
  phase("ADMIT run, its reply withheld", "admit_replied"),
  phase("connected upstream, nothing read", "upstream_connected"),
  phase("read upstream, nothing answered", "upstream_read"),
  phase("answered upstream, no BIND", "upstream_answered", { immediate: true }),
  phase("BIND at the store, not run", "bind_arrived"),
  phase("BIND run, its reply withheld", "bind_replied"),
  phase("answered, the client did not get it", "response"),
  phase("refused upstream, no VOID", "upstream_answered", { ...refused, immediate: true }),
  phase("VOID at the store, not run", "void_arrived", refused),
  phase("VOID run, its reply withheld", "void_replied", refused),
  phase("refused, the client did not get it", "response", refused),
  phase("poll read upstream, not answered", "poll_read", polled),
  phase("OBSERVE at the store, not run", "observe_arrived", polled),
  phase("OBSERVE run, its reply withheld", "observe_replied", polled),
  phase("polled, the client did not get it", "response", polled),
  phase("ADMIT timed out, 503 answered", "answer", { withholds: "admit" }),
  phase("BIND timed out, 200 answered", "answer", { withholds: "bind" }),
  phase("VOID timed out, 400 answered", "answer", { ...refused, withholds: "void" }),
];
