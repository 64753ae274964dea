import type { History } from "../history.ts";
import type { RunOptions } from "../world.ts";

/** One part of the campaign, in a full and in a short size. */
export interface Scenario<Size> {
  name: string;
  /** A line about it for the page of figures. */
  title(size: Size): string;
  full: Size;
  short: Size;
  run(options: RunOptions, size: Size): Promise<History>;
}
