import { accessSync, constants, existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import type { Config } from "../config/config.ts";
import { type Check, failed, good, warning } from "./doctor-check.ts";

const LOOPBACK = /^(localhost|127\.[\d.]+|\[?::1\]?)$/;

/**
 * The configuration: valid or not, and what in it an operator should have meant.
 * @param config undefined when it is not valid
 * @param problems its problems as text
 */
export function configCheck(config: Config | undefined, problems: string): Check {
  if (!config) {
    return failed("config", `not valid:\n${problems}`, "mend the file; `tollgate config check` looks again");
  }
  const remarks = attention(config);
  if (remarks.length === 0) return good("config", "valid");
  return warning("config", "valid", remarks.join("\n"));
}

/** Settings that are allowed, but are rarely meant in production. */
export function attention(config: Config): string[] {
  const remarks: string[] = [];
  const { upstream, store, admin } = config;
  const { protocol, hostname } = new URL(upstream.url);
  if (upstream.apiKey === undefined && !LOOPBACK.test(hostname)) {
    remarks.push("UPSTREAM_API_KEY is not set, so the generator is asked without a credential");
  }
  if (protocol === "http:" && !LOOPBACK.test(hostname)) {
    remarks.push("upstream.url is plain http, so keys and prompts can be read on the way; use https");
  }
  if (store.fallbackStrategy === "allow") {
    remarks.push("store.fallback_strategy is allow: while Redis is away, generations are not charged");
  }
  if (!LOOPBACK.test(admin.host)) {
    remarks.push(`admin.host is ${admin.host}: see that nobody outside can reach port ${admin.port}`);
  }
  return remarks;
}

/**
 * The folder where settlements wait while Redis is away, on the machine where this runs.
 * @param folder undefined when the config is not valid
 */
export function journalCheck(folder: string | undefined): Check {
  const name = "journal";
  if (folder === undefined) return warning(name, "not looked at", "mend the config first");
  const place = path.resolve(folder);
  try {
    // The gateway makes what is missing.
    let existing = place;
    while (!existsSync(existing)) existing = path.dirname(existing);
    if (!statSync(existing).isDirectory()) throw new Error(`${existing} is no folder`);
    accessSync(existing, constants.W_OK | constants.X_OK);
    if (existing !== place) return good(name, `${place} will be made at the first start`);
    const { files, entries } = waiting(place);
    if (entries === 0) return good(name, `${place} can be written, nothing waits`);
    return warning(
      name,
      `${entries} settlements (charges, or holds to be given back) wait in ${files} files of ${place}`,
      "a running gateway on this folder sends them within a minute; start one if none runs, and look at Redis if one does",
    );
  } catch (error) {
    return failed(
      name,
      `${place} cannot be used (${(error as Error).message})`,
      "let the gateway's user write there, or set store.journal to another folder; else settlements are lost when Redis is away",
    );
  }
}

function waiting(folder: string): { files: number; entries: number } {
  let files = 0;
  let entries = 0;
  for (const file of readdirSync(folder).filter((each) => each.endsWith(".ndjson"))) {
    const lines = readFileSync(path.join(folder, file), "utf8")
      .split("\n")
      .filter((line) => line !== "").length;
    if (lines > 0) files++;
    entries += lines;
  }
  return { files, entries };
}
