import { join } from "node:path";
import type { LinkEvent } from "../fault/history.ts";
import { type Command, createCommandReader, createReplyReader, scriptsBySha } from "../support/resp.ts";
import { type Links, OUTSIDE, type Tap } from "./links.ts";

/** Scripts whose calls belong into the history. */
const RECORDED = new Set(["admit", "bind", "void", "observe"]);

/**
 * Records the scripts that gateways call on nodes, without any influence on them.
 * @param options.links of the nodes
 * @param options.isData whether a node holds data; a Sentinel is not recorded
 * @param options.root where the gateways' `lua/` lies
 */
export function recordScripts(options: {
  links: Links;
  isData(node: string): boolean;
  root: string;
}): readonly LinkEvent[] {
  const events: LinkEvent[] = [];
  const scripts = scriptsBySha(join(options.root, "lua"));
  options.links.tap((from, to) =>
    from === OUTSIDE && options.isData(to) ? createTap(scripts, events) : undefined,
  );
  return events;
}

function createTap(scripts: ReturnType<typeof scriptsBySha>, events: LinkEvent[]): Tap {
  const readCommands = createCommandReader(scripts);
  const readReplies = createReplyReader();
  /** Per command without a reply yet: what was recorded of it. */
  const unanswered: LinkEvent[][] = [];
  return {
    sent(chunk) {
      for (const command of readCommands(chunk)) {
        const own = eventsOf(command);
        unanswered.push(own);
        events.push(...own);
      }
    },
    received(chunk) {
      for (const { outcome, parts } of readReplies(chunk)) {
        const own = unanswered.shift() ?? [];
        for (const [at, event] of own.entries()) {
          event.outcome = parts[at] ?? outcome;
          event.delivered = true;
        }
      }
    },
  };
}

/** The request id is the first ARGV of their own of all recorded scripts; of ADMIT account and key follow. */
function eventsOf({ label, items }: Command): LinkEvent[] {
  if (!RECORDED.has(label)) return [];
  const atMs = Date.now();
  return items.map(({ args }) => ({
    gateway: "",
    script: label,
    requestId: String(args[0]),
    ...(label === "admit" ? { keyId: String(args[2]) } : {}),
    atMs,
    forwardedMs: atMs,
    outcome: "",
    delivered: false,
  }));
}
