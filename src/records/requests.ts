import { REQUEST_PARTS, type RequestRecord } from "./records.ts";

const PARTS = Object.keys(REQUEST_PARTS) as (keyof typeof REQUEST_PARTS)[];

/** Fields that may hold spaces, at which a field ends. */
const ENCODED: ReadonlySet<string> = new Set<keyof RequestRecord>(["details", "fingerprint"]);
const encoded = (value: string): string =>
  value.replace(/[\t-\r %]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`);
const decoded = (value: string): string =>
  value.replace(/%([\dA-F]{2})/gi, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16)));

/** A request from its text. Empty parts are not there. Lua reads it in lua/include/request.lua. */
export function requestOf(text: string | null | undefined): RequestRecord {
  const record: Partial<Record<keyof RequestRecord, string>> = {};
  if (!text) return record;
  const words = text.split(" ");
  for (const [at, part] of PARTS.entries()) if (words[at]) record[part] = words[at];
  for (const word of words.slice(PARTS.length)) {
    const [name = "", ...values] = word.split("=");
    const value = values.join("=");
    record[name as keyof RequestRecord] = ENCODED.has(name) ? decoded(value) : value;
  }
  return record;
}

const fieldText = ([name, value]: [string, string]): string =>
  `${name}=${ENCODED.has(name) ? encoded(value) : value}`;

/** The text of a request. */
export function requestText(record: RequestRecord): string {
  const parts = PARTS.map((part) => record[part] ?? "");
  const fields = Object.entries(record).filter(([name]) => !(name in REQUEST_PARTS));
  return [...parts, ...fields.map(fieldText)].join(" ");
}
