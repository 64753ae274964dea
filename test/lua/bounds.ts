import type { Redis } from "ioredis";
import { createScriptRunner, scriptsOf } from "../../src/redis/script-runner.ts";
import { readScript } from "../../src/redis/script-source.ts";
import { boundOf } from "./headers.ts";

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
  const edit = (lua: string, name: string): string => {
    const end = lua.indexOf("\n") + 1;
    const body = lua.slice(end).replace("local call = redis.call", "local call = steps_of_call");
    const bound = boundFor(readScript(name));
    return lua.slice(0, end) + COUNT(name, bound) + body;
  };
  const own = scriptsOf(redis);
  const where = folder === undefined ? {} : { folder };
  for (const canFreeze of [false, true]) {
    const runner = createScriptRunner(redis, {
      form: { checksFrozen: canFreeze, crossesSlots: false },
      edit,
      ...where,
    });
    if (canFreeze) Object.assign(own, runner);
  }
}
