import { stripVTControlCharacters, styleText } from "node:util";
import { Help } from "commander";
import { visible } from "../domain/operator-texts.ts";

const COLUMN_CHARS_MIN = 8;

export type Style = "bold" | "dim" | "red" | "green" | "yellow" | "cyan";

/** As much of a stream as decides how text is shown on it; `process.stdout` is one. */
export type Screen = NodeJS.WritableStream & { isTTY?: boolean; columns?: number };

/** Styled where the stream shows colours: a terminal that is not `TERM=dumb`. `NO_COLOR` and, before both, `FORCE_COLOR` decide. */
export const paint = (style: Style, text: string, screen: Screen = process.stdout): string =>
  styleText(style, text, { stream: screen });

export interface PaintedCell {
  style: Style;
  text: string;
}

/** A cell as it is shown. What others wrote reaches no terminal as it is: it may hold escape sequences. */
function shownCell(cell: unknown, screen: Screen): string {
  if (cell === undefined) return "-";
  if (typeof cell !== "object" || cell === null || !("style" in cell)) return visible(String(cell));
  const { style, text } = cell as PaintedCell;
  return paint(style, visible(text), screen);
}

export const hasColours = (screen: Screen): boolean => paint("bold", "x", screen) !== "x";

/** Styles and colours taken out again, for another place than they were made for. */
export const plain = (text: string): string => stripVTControlCharacters(text);

/** Characters in a line of a terminal; undefined where lines have no end, as in a file, or it does not say (0). */
export const widthOf = (screen: Screen): number | undefined =>
  screen.isTTY ? screen.columns || undefined : undefined;

export const iso = (ms: number | undefined): string | undefined =>
  ms === undefined ? undefined : new Date(ms).toISOString();

const SECOND_MS = 1000;
const STEPS: readonly (readonly [unit: string, ms: number, below: number])[] = [
  ["s", SECOND_MS, 60],
  ["min", 60 * SECOND_MS, 60],
  ["h", 3600 * SECOND_MS, 48],
  ["days", 86_400 * SECOND_MS, 60],
  ["months", 30.44 * 86_400 * SECOND_MS, 24],
  ["years", 365.25 * 86_400 * SECOND_MS, Number.POSITIVE_INFINITY],
];

/** How far a moment is from now, such as `in 3 h` or `12 days ago`. */
export function fromNow(atMs: number, nowMs: number = Date.now()): string {
  const awayMs = Math.abs(atMs - nowMs);
  if (awayMs < SECOND_MS / 2) return "now";
  const [unit, unitMs] = STEPS.find(([, ms, below]) => Math.round(awayMs / ms) < below) ??
    STEPS[0] ?? ["s", 1];
  const distance = `${Math.max(1, Math.round(awayMs / unitMs))} ${unit}`;
  return atMs > nowMs ? `in ${distance}` : `${distance} ago`;
}

/** A moment in a table: how far away for people at a terminal, ISO 8601 for everybody else. */
export const moment = (atMs: number | undefined, screen: Screen = process.stdout): string | undefined =>
  atMs !== undefined && screen.isTTY ? fromNow(atMs) : iso(atMs);

/** Rows in columns. Where the terminal is too narrow, `gives` are cut first, then `drops` are left out; no other column gives way. */
export function table(
  headings: readonly string[],
  rows: readonly (readonly unknown[])[],
  options: { gives?: readonly string[]; drops?: readonly string[]; screen?: Screen } = {},
): string {
  const { gives = [], drops = [], screen = process.stdout } = options;
  const titles = headings.map((text): PaintedCell => ({ style: "bold", text }));
  const cells = [titles, ...rows].map((row) => row.map((cell) => shownCell(cell, screen)));
  const widths = headings.map((_, at) =>
    cells.reduce((most, row) => Math.max(most, shownChars(row[at] ?? "")), 0),
  );
  const flexible = headings.flatMap((heading, at) => (gives.includes(heading) ? [at] : []));
  const fits = narrow(widths, flexible, widthOf(screen));
  const dropped = drops[0] === undefined ? -1 : headings.indexOf(drops[0]);
  if (!fits && dropped >= 0) {
    const without = <T>(row: readonly T[]): T[] => row.toSpliced(dropped, 1);
    return table(without(headings), rows.map(without), { ...options, drops: drops.slice(1) });
  }
  return cells
    .map((row) =>
      row
        .map((cell, at) => sized(cell, widths[at] ?? 0))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

/** Takes from the widest of the flexible columns until all fit, or none has more to give. @returns whether they fit */
function narrow(widths: number[], flexible: readonly number[], columns: number | undefined): boolean {
  if (columns === undefined) return true;
  const all = (): number => widths.reduce((sum, width) => sum + width + 2, -2);
  for (let over = all() - columns; over > 0; over--) {
    const widest = flexible.reduce(
      (a, b) => ((widths[b] ?? 0) > (widths[a] ?? 0) ? b : a),
      flexible[0] ?? -1,
    );
    const width = widths[widest] ?? 0;
    if (width <= COLUMN_CHARS_MIN) return false;
    widths[widest] = width - 1;
  }
  return true;
}

function sized(cell: string, width: number): string {
  const chars = shownChars(cell);
  if (chars <= width) return cell + " ".repeat(width - chars);
  return `${plain(cell).slice(0, width - 1)}…`;
}

const shownChars = (text: string): number => plain(text).length;

/** Names and values, one a line; undefined values are left out. Moments also say how far away they are. */
export function listing(fields: Record<string, unknown>, screen: Screen = process.stdout): string {
  const shown = Object.entries(fields).filter(([, value]) => value !== undefined);
  const width = Math.max(...shown.map(([name]) => name.length));
  return shown
    .map(([name, value]) => {
      const away = name.endsWith("_at") && screen.isTTY ? ` (${fromNow(Date.parse(String(value)))})` : "";
      return `${paint("bold", name.padEnd(width), screen)}  ${visible(typeof value === "object" ? JSON.stringify(value) : String(value))}${paint("dim", away, screen)}`;
    })
    .join("\n");
}

const LINE_CHARS_MIN = 20;
const layout = Object.assign(new Help(), { minWidthToWrap: LINE_CHARS_MIN });

/** Text broken at blanks into lines of at most `width` characters, those after the first indented. */
export const wrapped = (text: string, width: number, indent: number): string =>
  layout.boxWrap(text, Math.max(LINE_CHARS_MIN, width - indent)).replaceAll("\n", `\n${" ".repeat(indent)}`);

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
