import path from "node:path";
import { Type } from "typebox";
import { Pointer } from "typebox/value";
import { isObject } from "../domain/json.ts";
import { nearest } from "../domain/problems.ts";
import type { Adapter } from "../upstream/adapter.ts";
import { type AdapterChoice, BUILT_IN, withDefaults } from "../upstream/adapter-choice.ts";
import { isModuleName, loadAdapterModule, ModuleMistake } from "./adapter-module.ts";
import type { ConfigProblem } from "./problems.ts";
import { type BrokenRule, validate } from "./validate.ts";
import { type FileReader, printedName, readFailure } from "./yaml-file.ts";

/** `previous` is undefined if `upstream.previous_adapter` is empty. */
export interface AdapterChoices {
  readonly present: AdapterChoice;
  readonly previous: AdapterChoice | undefined;
}

interface Found {
  problems: BrokenRule[];
  inModules: ConfigProblem[];
}

/** Data may be invalid. `choices` is undefined if there are problems. */
export function readAdapters(
  data: unknown,
  folder: string,
  read: FileReader,
): Found & { choices: AdapterChoices | undefined } {
  const found: Found = { problems: [], inModules: [] };
  const present = choose(data, "adapter", Pointer.Get(data, "/upstream/options"), folder, read, found);
  const hasPrevious = Pointer.Get(data, "/upstream/previous_adapter") !== "";
  const previous = hasPrevious ? choose(data, "previous_adapter", {}, folder, read, found) : undefined;
  if (present && previous && present.name === previous.name && present.id !== previous.id) {
    const message = `has the same name as upstream.adapter, ${present.name}, and a task knows its adapter by that; give one of them another name`;
    found.problems.push({ keys: ["upstream", "previous_adapter"], message });
  }
  const isBroken = found.problems.length + found.inModules.length > 0;
  return { ...found, choices: present && !isBroken ? { present, previous } : undefined };
}

function choose(
  data: unknown,
  setting: "adapter" | "previous_adapter",
  options: unknown,
  folder: string,
  read: FileReader,
  found: Found,
): AdapterChoice | undefined {
  const named = Pointer.Get(data, `/upstream/${setting}`);
  if (typeof named !== "string" || named === "") return undefined;
  const keys = ["upstream", setting];
  const builtIn = BUILT_IN.get(named);
  if (builtIn) return withOptions(builtIn, named, options, found);
  if (!isModuleName(named)) {
    found.problems.push({ keys, message: whyUnknown(named) });
    return undefined;
  }
  const file = path.resolve(folder, named);
  try {
    const { adapter, id } = loadAdapterModule(file, read(file));
    return withOptions(adapter, id, options, found);
  } catch (error) {
    if (error instanceof ModuleMistake) {
      const { line, message } = error;
      found.inModules.push({
        file: printedName(file),
        path: "",
        message,
        ...(line !== undefined && { line }),
      });
    } else {
      const message = `${named} cannot be read: ${readFailure(error)}; a relative path begins at the config file's folder`;
      found.problems.push({ keys, message });
    }
    return undefined;
  }
}

function whyUnknown(name: string): string {
  const known = [...BUILT_IN.keys()];
  const meant = nearest(name, known);
  const own = "a file of your own ends in .ts, .js or .mjs";
  if (meant !== undefined) return `is no adapter; did you mean ${meant}? ${own}`;
  return `is no adapter; there are ${known.join(", ")}, and ${own}`;
}

function withOptions(adapter: Adapter, id: string, given: unknown, found: Found): AdapterChoice | undefined {
  const { value, problems } = readOptions(adapter, given);
  const keys = ["upstream", "options"];
  found.problems.push(...problems.map((rule) => ({ ...rule, keys: [...keys, ...rule.keys] })));
  return value && { name: adapter.name, id, adapter: getterOf(adapter), options: value };
}

const getters = new WeakMap<Adapter, () => Adapter>();

/** One function for each adapter, so that equal configurations are equal. */
function getterOf(adapter: Adapter): () => Adapter {
  const known = getters.get(adapter);
  if (known) return known;
  const getter = (): Adapter => adapter;
  getters.set(adapter, getter);
  return getter;
}

/** Validates options by the adapter's schema, and applies its defaults. `value` is undefined if there are problems. */
export function readOptions(
  adapter: Adapter,
  given: unknown,
): { value: AdapterChoice["options"] | undefined; problems: BrokenRule[] } {
  const { name, options } = adapter;
  if (isObject(given) && options === undefined && Object.keys(given).length > 0)
    return {
      value: undefined,
      problems: [{ keys: [], message: `must be empty: the adapter ${name} has none` }],
    };
  const schema = Type.Unsafe<Record<string, unknown>>({
    properties: {},
    ...options,
    type: "object",
    additionalProperties: false,
  });
  try {
    return validate(schema, isObject(given) ? withDefaults(adapter, given) : given);
  } catch (error) {
    const message = `cannot be checked by the schema of the adapter ${name}: ${(error as Error).message}`;
    return { value: undefined, problems: [{ keys: [], message }] };
  }
}
