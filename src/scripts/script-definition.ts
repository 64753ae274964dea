import type { Tiers } from "../domain/limits.ts";

/** A file `lua/<name>.lua`; its header names its arguments and lists its replies. */
export interface ScriptFile {
  readonly name: string;
  /** One call carries many items (lua/batch.lua). Each reply's second value is the script's `now`, the store's clock. */
  readonly isBatched?: true;
}

/** One script with its arguments and its reply by name. Idempotent: one that runs late or twice has the effect of once. */
export interface Script<Call, Result> extends ScriptFile {
  keys(call: Call): string[];
  /** For scripts that resolve a key's limits: the second ARGV. */
  tiers?(call: Call): Tiers;
  /** ARGV behind now and tiers. */
  args(call: Call): Argument[];
  read(reply: Reply, call: Call): Result;
}

export type Argument = string | number;

/** A reply of Redis: first the outcome (of LEASE and SURVEY: the store's clock), then what the header lists. */
export type Reply = ReplyValue[];
type ReplyValue = string | number | ReplyValue[];

/** KEYS and ARGV of one run of a script, as the header of its file counts them. */
export interface Item {
  readonly keys: readonly string[];
  /** The first ARGV: now, and the tiers where the script takes them. Items of one call share them. */
  readonly shared: readonly string[];
  readonly args: readonly Argument[];
}

export type Run = <Call, Result>(script: Script<Call, Result>, call: Call) => Promise<Result>;

/** An error of one item of a call, as lua/batch.lua reports it; any other error is about the whole call. */
export class ItemError extends Error {
  override readonly name = "ReplyError";
}
