import { plain, type Screen, widthOf } from "./terminal.ts";

const REDRAW_AFTER_MS = 100;
/** Back to the start of the line, and clear it. */
const CLEAR = "\r\x1b[2K";

interface Progress {
  /** Shows how far the work is, in place of what was shown before. */
  show(text: string): void;
  done(): void;
}

const SILENT: Progress = { show: () => undefined, done: () => undefined };

/** One line on a terminal's standard error. @param options.output where the work prints: the line would stand between two of its lines */
export function startProgress(options: { screen?: Screen; output?: Screen } = {}): Progress {
  const { screen = process.stderr, output } = options;
  if (!screen.isTTY || output?.isTTY || process.env.TERM === "dumb") return SILENT;
  let drawnMs = Number.NEGATIVE_INFINITY;
  let visible = false;
  return {
    show(text) {
      if (performance.now() - drawnMs < REDRAW_AFTER_MS) return;
      drawnMs = performance.now();
      visible = true;
      screen.write(CLEAR + plain(text).slice(0, Math.max(1, (widthOf(screen) ?? 80) - 1)));
    },
    done() {
      if (visible) screen.write(CLEAR);
      visible = false;
    },
  };
}
