import { hash } from "node:crypto";
import { Pointer } from "typebox/value";
import { isObject } from "../domain/json.ts";
import type { WrittenPrices } from "./price-lists.ts";
import { redactSetting, withoutRedisPassword } from "./redact.ts";
import { NEEDS_RESTART, type Settings } from "./schema.ts";

export interface Written {
  readonly settings: Settings;
  readonly prices: WrittenPrices;
  /** Contents behind settings that name files, by the setting. */
  readonly contents?: Readonly<Record<string, string | undefined>>;
}

export interface Difference {
  /** Dotted, such as `server.port`, or a price such as `gen2-pro/storyboard.by_n_frames.10`. */
  readonly setting: string;
  readonly from: unknown;
  readonly to: unknown;
  readonly needsRestart: boolean;
}

export function differences(from: Written, to: Written): Difference[] {
  const [before, after] = [leaves(from), leaves(to)];
  const names = new Set([...after.keys(), ...before.keys()]);
  return [...names]
    .filter((name) => JSON.stringify(before.get(name)) !== JSON.stringify(after.get(name)))
    .map((setting) => ({
      setting,
      from: redactSetting(setting, before.get(setting)),
      to: redactSetting(setting, after.get(setting)),
      needsRestart: needsRestart(setting),
    }));
}

const CONTENT = " (content)";

function needsRestart(setting: string): boolean {
  const named = setting.replace(CONTENT, "");
  return NEEDS_RESTART.has(named) || NEEDS_RESTART.has(named.split(".", 2).join("."));
}

export function inWords({ setting, from, to }: Pick<Difference, "setting" | "from" | "to">): string {
  const words = (value: unknown): string => (value === undefined ? "nothing" : JSON.stringify(value));
  return `${setting}: ${words(from)} to ${words(to)}`;
}

export function withoutRestarts(current: Settings, next: Settings): Settings {
  const mixed = structuredClone(next);
  for (const setting of NEEDS_RESTART) {
    const pointer = `/${setting.replace(".", "/")}`;
    const value = Pointer.Get(current, pointer);
    if (value === undefined) Pointer.Delete(mixed, pointer);
    else Pointer.Set(mixed, pointer, value);
  }
  return mixed;
}

/** Two gateways on one host need different ports, and two machines have different names. */
const PER_PROCESS: ReadonlySet<string> = new Set([
  "server.host",
  "server.port",
  "admin.host",
  "admin.port",
  "admin.hosts",
]);

/** 16 hex digits, the same for the same settings and prices; passwords, listeners and their names do not count. */
export function hashOf(written: Written): string {
  const all = [...leaves(written)].filter(([setting]) => !PER_PROCESS.has(setting));
  const text = all.map((entry) => JSON.stringify(entry)).sort();
  return hash("sha256", text.join("\n")).slice(0, 16);
}

export function settingLeaves(data: unknown): Map<string, unknown> {
  const found = new Map<string, unknown>();
  const walk = (value: unknown, name: string): void => {
    if (!isObject(value)) found.set(name, value);
    else for (const [key, part] of Object.entries(value)) walk(part, name === "" ? key : `${name}.${key}`);
  };
  walk(data, "");
  return found;
}

function leaves({ settings, prices, contents = {} }: Written): Map<string, unknown> {
  const found = new Map([...settingLeaves(withoutRedisPassword(settings)), ...settingLeaves(prices)]);
  for (const [setting, content] of Object.entries(contents)) {
    if (content !== undefined) found.set(`${setting}${CONTENT}`, hash("sha256", content).slice(0, 16));
  }
  return found;
}
