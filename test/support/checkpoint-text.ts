import type { Checkpoint, TailEntry } from "../../src/records/checkpoints.ts";

function whatFor({ type, endpoint, reason, taskId, kind }: TailEntry): string {
  if (kind === "reversal") return `- ${reason}`;
  if (kind !== "") return `+ ${kind}`;
  const isAdjustment = endpoint === "" && taskId === "" && reason !== "";
  return (isAdjustment ? `= ${reason}` : type === "consume" ? endpoint : `${reason} ${taskId}`).trimEnd();
}

/** The text of a checkpoint, as lua/include/checkpoint.lua writes it. */
export function checkpointText(checkpoint: Checkpoint): string {
  const numbers = Object.entries(checkpoint)
    .filter(([name, value]) => name !== "entry" && name !== "tail" && value !== 0)
    .map(([name, value]) => `${name} ${value}`);
  let above = "";
  const lines = checkpoint.tail.map((entry) => {
    const what = whatFor(entry);
    const shown = what !== "" && what === above ? '"' : what;
    above = what;
    const [ms] = entry.streamId.split("-");
    const stamp = String(entry.atMs) === ms ? "" : `@${entry.atMs}`;
    const place = entry.streamId.replace(/-0$/, "") + stamp;
    return `${place} ${entry.type.charAt(0)} ${entry.amount} ${shown}`.trimEnd();
  });
  return [[`entry ${checkpoint.entry}`, ...numbers].join(" "), ...lines].join("\n");
}
