import type { IssuedKey } from "../../src/store/accounts.ts";
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
  /** Starts it in front of the world's upstream, for these keys. */
  start(world: World, keys: readonly IssuedKey[]): Promise<RunningSubject>;
}
