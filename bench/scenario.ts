import type { Requirement } from "./requirements.ts";
import type { TargetName, Verdict } from "./targets.ts";
import type { Tree } from "./tree.ts";
import type { World } from "./world.ts";

export interface Table {
  columns: string[];
  rows: string[][];
}

/** Results of one scenario. */
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

/** Everything that a scenario is run with. */
export interface Context {
  world: World;
  /** The first is measured everywhere; further ones beside it where programs are compared. */
  trees: readonly Tree[];
  full: boolean;
  rounds: number;
  seconds: number;
  /** Load before each interval; Node compiles what is hot in its first seconds, and that is not the cost of a request. */
  warmUpSeconds: number;
  has(requirement: Requirement): boolean;
  progress(line: string): void;
}

export interface Scenario {
  title: string;
  /** Part of the quick run. */
  quick: boolean;
  needs: readonly Requirement[];
  /** Targets that it judges, so that each is shown even where the scenario could not be run. */
  targets: readonly TargetName[];
  run(context: Context): Promise<Outcome>;
}
