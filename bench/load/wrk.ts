import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { OTHER_CORES, startPinned } from "../processes.ts";

/** One request that the load repeats. */
export interface Target {
  method: "GET" | "POST";
  path: string;
  token: string;
  body?: string;
  /** Of a body; application/json if not said. */
  contentType?: string;
  headers?: Record<string, string>;
}

/** Results of wrk. `unsuccessful` answers have a status of 400 or more; `broken` had none. */
export interface LoadResult {
  requests: number;
  seconds: number;
  unsuccessful: number;
  broken: number;
  p50Us: number;
  p99Us: number;
  maxUs: number;
}

/** Writes targets as the Lua table that wrk.lua reads. */
export function writeTargets(folder: string, name: string, targets: readonly Target[]): string {
  const lua = (text?: string): string => (text === undefined ? "nil" : JSON.stringify(text));
  const rows = targets.map(({ method, path, token, body, contentType, headers = {} }) => {
    const others = Object.entries(headers).map(([name, value]) => `[${lua(name)}]=${lua(value)}`);
    return [...[method, path, token, body, contentType].map(lua), `{${others}}`].join(",");
  });
  const file = join(folder, `${name}.lua`);
  writeFileSync(file, `return {\n${rows.map((row) => `{${row}}`).join(",\n")}\n}\n`);
  return file;
}

/** As many requests as the server bears, from one thread of wrk with keep-alive. */
export async function saturate(
  folder: string,
  url: string,
  targetsFile: string,
  { seconds, connections }: { seconds: number; connections: number },
): Promise<LoadResult> {
  const script = join(import.meta.dirname, "wrk.lua");
  const args = ["-t1", `-c${connections}`, `-d${seconds}s`, "--timeout", "10s", "-s", script, url];
  const run = await startPinned("wrk", [...args, "--", targetsFile], {
    folder,
    name: "wrk",
    cores: OTHER_CORES,
  });
  const how = await run.ended;
  const output = readFileSync(join(folder, "wrk.log"), "utf8");
  const line = output.split("\n").find((text) => text.startsWith("{"));
  if (how !== "exit code 0" || line === undefined)
    throw new Error(`wrk: ${how}: ${output.trim().slice(-500)}`);
  const result = JSON.parse(line) as LoadResult;
  if (result.requests === 0) throw new Error(`wrk: no answer in ${seconds} s`);
  return result;
}

/**
 * Warms a program up with two loads: when the connections of the first one end, V8 throws away code that it compiled
 * while there were only new ones, and the second has it compile that again. Else the measured load would pay for it.
 */
export async function warmUp(load: (seconds: number) => Promise<unknown>, seconds: number): Promise<void> {
  const first = Math.ceil(seconds / 3);
  await load(first);
  await load(seconds - first);
}
