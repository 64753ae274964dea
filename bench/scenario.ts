import type { Requirement } from "./requirements.ts";
import type { Tree } from "./tree.ts";
import type { World } from "./world.ts";

/** A figure of the list, and whether it was reached; undefined when it could not be measured. */
export interface Verdict {
  /** Which of the eight points. */
  point: number;
  /** In words, with the bound. */
  target: string;
  reached: string;
  met: boolean | undefined;
}

export interface Table {
  columns: string[];
  rows: string[][];
}

/** What one scenario found. */
export interface Outcome {
  /** In short, how it was measured. */
  method: string;
  tables: Table[];
  verdicts: Verdict[];
  /** One line for each interval that others disturbed. */
  disturbed: string[];
  /** All figures, unrounded. */
  figures: unknown;
}

/** What a scenario is run with. */
export interface Context {
  world: World;
  /** The first is measured everywhere; further ones beside it where programs are compared. */
  trees: readonly Tree[];
  full: boolean;
  rounds: number;
  seconds: number;
  has(requirement: Requirement): boolean;
  progress(line: string): void;
}

export interface Scenario {
  title: string;
  /** Part of the quick run. */
  quick: boolean;
  needs: readonly Requirement[];
  run(context: Context): Promise<Outcome>;
}

/** A verdict on a figure that must not exceed a bound. */
export function atMost(point: number, target: string, value: number, bound: number, unit = "x"): Verdict {
  const met = Number.isNaN(value) ? undefined : value <= bound;
  return { point, target, reached: Number.isNaN(value) ? "not measured" : `${short(value)} ${unit}`, met };
}

/** A number with three digits that matter. */
export function short(value: number): string {
  if (!Number.isFinite(value)) return "";
  const magnitude = Math.abs(value);
  return value.toFixed(magnitude >= 100 ? 0 : magnitude >= 10 ? 1 : 2);
}
