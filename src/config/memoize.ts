import type { Config } from "./config.ts";

/** Caches a value per config part. Requests with an older configuration keep theirs. @param part must be plain data */
export function memoizeByConfigPart<Made>(
  part: (config: Config) => unknown,
  make: (config: Config) => Made,
): (config: Config) => Made {
  const made = new WeakMap<Config, Made>();
  let latest: { key: string; value: Made } | undefined;
  return (config) => {
    const known = made.get(config);
    if (known !== undefined) return known;
    const key = JSON.stringify(part(config));
    if (latest?.key !== key) latest = { key, value: make(config) };
    made.set(config, latest.value);
    return latest.value;
  };
}
