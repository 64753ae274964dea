import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import {
  ACCOUNT_FIELDS,
  ARCHIVE_FIELDS,
  ENDPOINT_FIELDS,
  EVENT_FIELDS,
  IDEMPOTENCY_FIELDS,
  KEY_FIELDS,
  MAINTENANCE_FIELDS,
  REQUEST_FIELDS,
  ROLLED_FIELDS,
  TOKEN_FIELDS,
  TRIMMED_FIELDS,
} from "../../src/records/records.ts";
import { fixedText } from "../../src/scripts/holds.ts";
import { LUA_FOLDER } from "./headers.ts";

const DECLARED = Object.keys({
  ...ACCOUNT_FIELDS,
  ...KEY_FIELDS,
  ...IDEMPOTENCY_FIELDS,
  ...ARCHIVE_FIELDS,
  ...TRIMMED_FIELDS,
  ...MAINTENANCE_FIELDS,
  ...TOKEN_FIELDS,
  ...ROLLED_FIELDS,
  ...ENDPOINT_FIELDS,
  ...EVENT_FIELDS,
});
const FILES = globSync("**/*.lua", { cwd: LUA_FOLDER });

/** The arguments of a call, from behind its opening bracket. */
function argumentsOf(text: string): string[] {
  const found = [""];
  let depth = 0;
  for (const letter of text) {
    if (letter === ")" && depth === 0) break;
    if ("({[".includes(letter)) depth++;
    if (")}]".includes(letter)) depth--;
    if (letter === "," && depth === 0) found.push("");
    else found[found.length - 1] += letter;
  }
  return found.map((argument) => argument.trim());
}

/** The names of fields that a script reads or writes in hashes. */
function fieldsIn(text: string): string[] {
  const calls = [...text.matchAll(/\bcall\("(HSET|HMGET|HGET|HDEL|HINCRBY)", /g)];
  return calls.flatMap(({ index, 0: begin, 1: command }) => {
    const fields = argumentsOf(text.slice(index + begin.length)).slice(1);
    const named = /HSET|HINCRBY/.test(command!) ? fields.filter((_, at) => at % 2 === 0) : fields;
    return named.flatMap((field) => /^"(\w+)"$/.exec(field)?.[1] ?? []);
  });
}

test("the fields that the scripts read and write are those that are declared", () => {
  const used = FILES.flatMap((file) => fieldsIn(readFileSync(join(LUA_FOLDER, file), "utf8")));
  expect([...new Set(used)].filter((field) => !DECLARED.includes(field))).toEqual([]);
  const operators = [
    "tier",
    "sha256",
    "rotated_to",
    "scopes",
    "accounts",
    "archive",
    "listed",
    "label",
    "metadata",
    "fingerprint",
    "monthly_credits",
    "restrictions",
    "root",
    "created_at",
    "url",
    "events",
    ...["on", "retry_after", "message"],
  ];
  expect(DECLARED.filter((field) => !used.includes(field) && !operators.includes(field))).toEqual([]);
});

test("the fields of a request that the scripts write are those that are declared", () => {
  const texts = FILES.map((file) => readFileSync(join(LUA_FOLDER, file), "utf8"));
  const changed = texts.flatMap((text) =>
    [...text.matchAll(/\bchanged_request\(/g)].flatMap(({ index, 0: begin }) =>
      argumentsOf(text.slice(index + begin.length))
        .slice(2)
        .filter((_, at) => at % 2 === 0)
        .flatMap((argument) => /^"([a-z]\w+)"$/.exec(argument)?.[1] ?? []),
    ),
  );
  const appended = texts.flatMap((text) => [...text.matchAll(/" (\w+)=/g)].map(([, name]) => name));
  const written = new Set([...changed, ...appended, "trimmed_charge", "trimmed_refund"]);
  const ofGateway = fixedText({ maxAgeMs: 1, upstream: "u" }).match(/\w+(?==)/g) ?? [];
  expect([...written, ...ofGateway].sort()).toEqual(Object.keys(REQUEST_FIELDS).sort());
});
