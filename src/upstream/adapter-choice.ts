import type { Adapter } from "./adapter.ts";
import { ENVELOPE } from "./adapters/envelope.ts";
import { KIE } from "./adapters/kie.ts";

/** An adapter as the configuration names it. Plain data but for the function, which tells two versions of a module apart by `id`. */
export interface AdapterChoice {
  readonly name: string;
  /** The name, or the file of a module and a digest of its content. */
  readonly id: string;
  readonly adapter: () => Adapter;
  /** Valid for the adapter, with its defaults. */
  readonly options: Readonly<Record<string, unknown>>;
}

export const ENVELOPE_CHOICE: AdapterChoice = {
  name: ENVELOPE.name,
  id: ENVELOPE.name,
  adapter: () => ENVELOPE,
  options: {},
};

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
