import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Redis } from "ioredis";

/** The verbs, each `lua/<verb>.lua`. Their headers say what KEYS, ARGV and replies are. */
export const VERBS = [
  "admit",
  "own",
  "bind",
  "void",
  "inspect",
  "observe",
  "credits",
  "issue",
  "recharge",
  "claim",
  "collect",
  "probe",
] as const;

export type Verb = (typeof VERBS)[number];

/** A script's reply: integers and strings, first the outcome (of `claim`: the store's clock). */
export type Reply = (string | number)[];

export type Scripts = Record<
  Verb,
  (keys: readonly string[], args: readonly (string | number)[]) => Promise<Reply>
>;

const FOLDER = join(import.meta.dirname, "../../lua");

/** The text of one verb as the store runs it: its `#!lua` line, the prelude, its body. */
export function scriptSource(verb: Verb, folder: string = FOLDER): string {
  const body = readFileSync(join(folder, `${verb}.lua`), "utf8");
  const prelude = readFileSync(join(folder, "prelude.lua"), "utf8");
  const end = body.indexOf("\n") + 1;
  return body.slice(0, end) + prelude + body.slice(end);
}

/**
 * Teaches a client the verbs. ioredis sends EVALSHA and, on NOSCRIPT alone, EVAL once more.
 * @param folder where the Lua files are; tests give mutants
 */
export function defineScripts(redis: Redis, folder: string = FOLDER): Scripts {
  const scripts = {} as Scripts;
  for (const verb of VERBS) {
    redis.defineCommand(verb, { lua: scriptSource(verb, folder) });
    const command = Reflect.get(redis, verb) as (...words: unknown[]) => Promise<Reply>;
    scripts[verb] = (keys, args) => command.call(redis, keys.length, ...keys, ...args);
  }
  return scripts;
}
