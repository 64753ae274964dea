import { hash } from "node:crypto";
import { Pointer } from "typebox/value";
import { isObject } from "../domain/json.ts";
import type { PriceTable } from "../domain/prices.ts";
import { redactSetting, withoutRedisPassword } from "./redact.ts";
import { NEEDS_RESTART, type Settings } from "./schema.ts";

/** What an operator writes: the config file's settings and the table of its price file. */
export interface Written {
  readonly settings: Settings;
  readonly prices: PriceTable;
  /** The content of the file that `upstream.tls_ca` names. */
  readonly upstreamCa?: string | undefined;
}

/** A setting or price that differs between two configurations; undefined where it is missing. */
export interface Difference {
  /** Dotted, such as `server.port`, or a price such as `gen2-pro/storyboard.by_n_frames.10`. */
  readonly setting: string;
  readonly from: unknown;
  readonly to: unknown;
  /** A running gateway keeps the old value until it is restarted. */
  readonly needsRestart: boolean;
}

const UPSTREAM_CA = "upstream.tls_ca (content)";

/** Settings and prices that differ, in the order of `to`. */
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

/** True if the setting or its group needs a restart: `server.tls.cert` is part of `server.tls`. */
const needsRestart = (setting: string): boolean =>
  NEEDS_RESTART.has(setting) || NEEDS_RESTART.has(setting.split(".", 2).join("."));

/** In one line, as for the log. */
export function inWords({ setting, from, to }: Pick<Difference, "setting" | "from" | "to">): string {
  const words = (value: unknown): string => (value === undefined ? "nothing" : JSON.stringify(value));
  return `${setting}: ${words(from)} to ${words(to)}`;
}

/** `next`, except that settings that need a restart are as in `current`. */
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

/** Settings in which the processes of one service may differ: two gateways on one host need other ports. */
const PER_PROCESS: ReadonlySet<string> = new Set(["server.host", "server.port", "admin.host", "admin.port"]);

/**
 * 16 hex digits that are the same wherever the same settings and prices are in force; passwords do not count, nor where a
 * gateway listens.
 */
export function hashOf(written: Written): string {
  const all = [...leaves(written)].filter(([setting]) => !PER_PROCESS.has(setting));
  const text = all.map((entry) => JSON.stringify(entry)).sort();
  return hash("sha256", text.join("\n")).slice(0, 16);
}

function leaves({ settings, prices, upstreamCa }: Written): Map<string, unknown> {
  const found = new Map<string, unknown>();
  const walk = (value: unknown, name: string): void => {
    if (!isObject(value)) found.set(name, value);
    else for (const [key, part] of Object.entries(value)) walk(part, name === "" ? key : `${name}.${key}`);
  };
  // Another path of the upstream is a change, another password of Redis is none.
  walk(withoutRedisPassword(settings), "");
  walk(prices, "");
  // The same path with other certificates is a change.
  if (upstreamCa !== undefined) found.set(UPSTREAM_CA, hash("sha256", upstreamCa).slice(0, 16));
  return found;
}
