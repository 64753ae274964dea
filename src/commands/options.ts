import { Command, InvalidArgumentError } from "commander";
import { durationMs, ms } from "../config/setting-types.ts";
import { isDay, momentMs } from "../domain/moments.ts";
import { type Actor, cliActor } from "../records/actor.ts";

export function command(name: string, description: string): Command {
  return new Command(name)
    .description(description)
    .option("--json", "print one JSON object and nothing else");
}

/** Makes a command anew: Commander keeps in it what it has parsed. */
export type MakeCommand = () => Command;

export const group =
  (name: string, description: string, below: readonly MakeCommand[]): MakeCommand =>
  () => {
    const made = new Command(name).description(description);
    for (const make of below) made.addCommand(make());
    return made;
  };

export interface ActorFlags {
  as?: string;
}

export const changing = (name: string, description: string): Command =>
  command(name, description).option(
    "--as <name>",
    "who changes it, for the audit and the ledger; the system user when left out",
    actorName,
  );

export const actorOf = ({ as }: ActorFlags): Actor => cliActor(as);

function actorName(text: string): string {
  if (/^[\x21-\x7e][\x20-\x7e]{0,63}$/.test(text)) return text;
  throw new InvalidArgumentError("It must be a name of 1 to 64 printable ASCII characters.");
}

export const whole =
  (least: number, most: number) =>
  (text: string): number => {
    const value = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= least && value <= most) return value;
    throw new InvalidArgumentError(`It must be a whole number from ${least} to ${most}.`);
  };

export const spanMs =
  (least: string, most: string) =>
  (text: string): number => {
    const value = durationMs(text) ?? Number.NaN;
    if (value >= ms(least) && value <= ms(most)) return value;
    throw new InvalidArgumentError(`It must be a duration with its unit, from ${least} to ${most}.`);
  };

/** Parses an option that names a file; empty is a shell variable that was not set. */
export function fileName(text: string): string {
  if (text !== "") return text;
  throw new InvalidArgumentError("It must be the name of a file.");
}

export function futureMs(text: string): number {
  const atMs = momentMs(text);
  if (atMs === undefined) {
    throw new InvalidArgumentError("It must be an ISO 8601 time such as 2030-01-31T00:00:00Z.");
  }
  if (atMs <= Date.now()) throw new InvalidArgumentError("It must lie in the future.");
  return atMs;
}

export function pastMs(text: string): number {
  const agoMs = durationMs(text);
  const atMs = agoMs === undefined ? momentMs(text) : Date.now() - agoMs;
  if (atMs !== undefined && atMs >= 0) return atMs;
  throw new InvalidArgumentError(
    "It must be an ISO 8601 time such as 2030-01-31, or how long ago, such as 7d.",
  );
}

export function dayOption(text: string): string {
  if (isDay(text)) return text;
  throw new InvalidArgumentError("It must be a day such as 2026-10-31.");
}
