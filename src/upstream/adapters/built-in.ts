import type { Adapter } from "../adapter.ts";
import { type AdapterChoice, ENVELOPE_CHOICE } from "../dialect.ts";
import { ENVELOPE } from "./envelope.ts";
import { KIE } from "./kie.ts";

export const BUILT_IN: ReadonlyMap<string, Adapter> = new Map([ENVELOPE, KIE].map((one) => [one.name, one]));

/** Each of them with its default options. */
export function builtInChoices(): AdapterChoice[] {
  return [...BUILT_IN.values()].map((adapter) => {
    if (adapter === ENVELOPE) return ENVELOPE_CHOICE;
    return { name: adapter.name, id: adapter.name, adapter: () => adapter, options: withDefaults(adapter) };
  });
}

export function withDefaults(
  { options }: Adapter,
  given: Readonly<Record<string, unknown>> = {},
): Record<string, unknown> {
  const defaults = Object.entries(options?.properties ?? {}).flatMap(([name, property]) =>
    "default" in property && given[name] === undefined ? [[name, structuredClone(property.default)]] : [],
  );
  return { ...given, ...Object.fromEntries(defaults) };
}
