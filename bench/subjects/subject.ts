import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import type { World } from "../world.ts";

/** A program under test that runs. */
export interface RunningSubject {
  url: string;
  pid: number;
  /** Only of gateways. */
  adminUrl?: string;
  logFile?: string;
  stop(): Promise<void>;
}

/** A program that can stand between the load and the upstream. */
export interface Subject {
  /** As tables name it. */
  name: string;
  /** Machine code from its start: nothing is compiled while it runs, or next to nothing. */
  native?: true;
  /** Starts it in front of the world's upstream, for these keys. */
  start(world: World, keys: readonly IssuedKey[]): Promise<RunningSubject>;
}

const NATIVE_WARM_UP_SECONDS = 6;

/**
 * Seconds of load before a program is measured.
 * @param seconds what one on Node gets
 */
export const warmUpOf = ({ native }: Subject, seconds: number): number =>
  native ? Math.min(seconds, NATIVE_WARM_UP_SECONDS) : seconds;
