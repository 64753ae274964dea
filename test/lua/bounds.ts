import { hash } from "node:crypto";
import type { Redis } from "ioredis";
import { createScriptRunner, scriptSource, scriptsOf } from "../../src/redis/script-runner.ts";
import { SCRIPTS } from "../../src/scripts/all.ts";
import { boundOf, readScript } from "./headers.ts";

/** Before each script: counts its commands and the values that they answer, and fails beyond the bound of its header. */
const COUNT = (name: string, bound: number): string => `
local steps = 0
local function values_in(reply)
  if type(reply) ~= "table" then return 0 end
  local count = 0
  for _, value in ipairs(reply) do count = count + 1 + values_in(value) end
  return count
end
local function steps_of_call(...)
  local reply = redis.call(...)
  steps = steps + 1 + values_in(reply)
  if steps > ${bound} then error("${name} takes more steps than ${bound}, the bound in its header") end
  return reply
end
`;

/**
 * Makes the scripts of a client fail when they go beyond their bounds. Wall clock has no part in it.
 * @param boundFor of a script, by its text
 * @param folder where the scripts are; of a mutant
 */
export function holdToBounds(redis: Redis, boundFor = boundOf, folder?: string): void {
  const counting = new Map<unknown, string>();
  for (const script of SCRIPTS) {
    const bound = boundFor(readScript(script.name));
    for (const checksFrozen of [false, true]) {
      const lua = scriptSource(script, { folder, checksFrozen });
      const end = lua.indexOf("\n") + 1;
      const body = lua.slice(end).replace("local call = redis.call", "local call = steps_of_call");
      const counted = lua.slice(0, end) + COUNT(script.name, bound) + body;
      counting.set(lua, counted).set(hash("sha1", lua), counted);
    }
  }
  const send = redis.sendCommand.bind(redis);
  redis.sendCommand = (command, stream) => {
    // A test's own commands of Lua have no `#!lua` line.
    if (command.name === "evalsha" || String(command.args[0]).startsWith("#!lua")) {
      const counted = counting.get(command.args[0]);
      if (counted === undefined) throw new Error("a script without a bound");
      command.name = "eval";
      command.args[0] = counted;
    }
    return send(command, stream);
  };
  if (folder !== undefined)
    Object.assign(scriptsOf(redis), createScriptRunner(redis, { canFreeze: () => true, folder }));
}
