import type { Loaded } from "./config.ts";
import { settingLeaves } from "./differences.ts";
import { SECRET_VARIABLES, variable } from "./environment.ts";
import { redactSetting, redactSettings } from "./redact.ts";

/** Where the value of a setting is from. */
type Origin =
  | { from: "environment"; variable: string }
  | { from: "file"; line: number | undefined }
  | { from: "default" };

export type EffectiveSetting = { setting: string; value: unknown } & Origin;

interface Effective {
  settings: EffectiveSetting[];
  /** By variable. */
  secrets: Record<string, "set" | "unset">;
}

/** All settings in force, without secrets, and where each is from. */
export function effectiveSettings(loaded: Loaded): Effective {
  const { origins, linesInFile, source } = loaded;
  const originOf = (setting: string): Origin => {
    const variable = origins.get(setting);
    if (variable !== undefined) return { from: "environment", variable };
    if (linesInFile.has(setting)) return { from: "file", line: linesInFile.get(setting) };
    return { from: "default" };
  };
  return {
    settings: [...settingLeaves(redactSettings(loaded.settings))].map(([setting, value]) => ({
      setting,
      value: redactSetting(setting, value),
      ...originOf(setting),
    })),
    secrets: Object.fromEntries(
      SECRET_VARIABLES.map((name) => [name, variable(source.env, name) === undefined ? "unset" : "set"]),
    ),
  };
}
