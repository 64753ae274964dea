import { PassThrough } from "node:stream";
import { stripVTControlCharacters } from "node:util";
import { expect, test } from "vitest";
import { printReadably, readable } from "../../../src/sandbox/readable-lines.ts";
import { soon } from "../../support/soon.ts";

const plain = (fields: object): string => stripVTControlCharacters(readable(JSON.stringify(fields)));
const line = { level: "info", time: "2030-01-31T14:03:09.123Z", service: "tollgate" };

test("a request is one short line: what was asked, how it ended, in which time and for whom", () => {
  const request = {
    request_id: "req_1",
    method: "POST",
    route: "/api/v1/upload",
    duration_ms: 1.5,
    key_id: "key_1",
  };
  expect(plain({ ...line, ...request, status: 200, outcome: "ok" })).toBe(
    "14:03:09 info  POST /api/v1/upload 200 ok  1.5 ms  key_1",
  );
  expect(plain({ ...line, ...request, status: 429, outcome: "rate_limited", limit: 20, used: 20 })).toBe(
    "14:03:09 info  POST /api/v1/upload 429 rate_limited 20 of 20  1.5 ms  key_1",
  );
  const refused = { status: 429, outcome: "rate_limited", limit: 20, used: 20, limit_of: "account" };
  expect(plain({ ...line, ...request, ...refused, retry_after_seconds: 60 })).toBe(
    "14:03:09 info  POST /api/v1/upload 429 rate_limited 20 of 20 of the account  retry in 60 s  1.5 ms  key_1",
  );
});

// Guarantee: the configuration fills no screen, and an error no more than its message.
test("an event is its message and its short fields", () => {
  const listening = { msg: "tollgate is listening", url: "http://a", config: { server: { port: 1 } } };
  expect(plain({ ...line, ...listening })).toBe("14:03:09 info  tollgate is listening url=http://a");
  const failed = { msg: "no", why: "x".repeat(500), err: { message: "broken", stack: "at a\nat b" } };
  expect(plain({ ...line, ...failed, level: "error" })).toBe(
    `14:03:09 error no why=${"x".repeat(400)}… broken`,
  );
});

// Guarantee: who edits the configuration beside a running `npm start` sees what came of it.
test("lists and flat objects are printed: what has changed, what waits for a restart, which tiers are missing", () => {
  const changes = ['log.level: "info" to "debug"', "gen2/text-to-video: 10 to 20"];
  expect(plain({ ...line, msg: "in force", changes })).toBe(
    '14:03:09 info  in force changes=log.level: "info" to "debug", gen2/text-to-video: 10 to 20',
  );
  const settings = ["store.partitions: 64 to 8"];
  expect(plain({ ...line, msg: "restart", settings, none: null })).toBe(
    "14:03:09 info  restart settings=store.partitions: 64 to 8",
  );
  expect(plain({ ...line, msg: "tiers", keys_by_tier: { gold: 12, silver: 1 } })).toBe(
    "14:03:09 info  tiers keys_by_tier=gold: 12, silver: 1",
  );
  expect(plain({ ...line, msg: "deep", lost: [{ id: 1 }] })).toBe('14:03:09 info  deep lost=[{"id":1}]');
});

test("a line that is no JSON is printed as it is, and each line once", async () => {
  const from = new PassThrough();
  const printed: string[] = [];
  printReadably(from, { write: (text) => printed.push(stripVTControlCharacters(text)) }, "own");
  from.write('plain\n{"half\n');
  from.end(`${JSON.stringify({ ...line, msg: "last" })}\n`);
  await soon(() => expect(printed).toEqual(["plain\n", '{"half\n', "14:03:09 info  last\n"]));
});

// Guarantee: the lines to paste and the key stay the last on the screen until somebody does something.
test("what npm start asks of its gateway by itself is not printed", async () => {
  const from = new PassThrough();
  const printed: string[] = [];
  printReadably(from, { write: (text) => printed.push(text) }, "own");
  const request = { ...line, method: "GET", route: "/api/v1/credits", status: 200, outcome: "ok" };
  for (const id of ["own", "theirs"])
    from.write(`${JSON.stringify({ ...request, client_request_id: id })}\n`);
  from.end(`${JSON.stringify({ ...line, msg: "last" })}\n`);
  await soon(() => expect(printed.at(-1)).toContain("last"));
  expect(printed).toHaveLength(2);
});

// Guarantee: no web page and no caller gets an escape sequence to the terminal of whoever runs `npm start`.
test.each([
  ["a cleared screen", "\u001b[2J"],
  ["the clipboard", "\u001b]52;c;aGk=\u0007"],
  ["a C1 sequence", "\u009b2J"],
  ["text that runs backwards", "\u202egnp.exe"],
  ["an isolate", "\u2066x\u2069"],
  ["a second line", "x\n14:03:09 info  forged"],
  ["a line separator", "x\u2028y"],
])("%s is shown escaped, wherever it stands", (_, hostile) => {
  const request = { method: hostile, route: `/api/v1/${hostile}`, key_id: hostile, detail: hostile };
  for (const fields of [
    { ...line, msg: hostile, path: hostile, changes: [hostile], deep: { a: { b: hostile } } },
    { ...line, ...request, status: 200, outcome: hostile, limit: hostile, used: hostile },
    { ...line, level: hostile, time: hostile, err: { message: hostile } },
  ])
    expect(readable(JSON.stringify(fields))).toMatch(/^[^\p{Cc}\p{Cf}\p{Zl}]*$/u);
  expect(readable(`plain ${hostile}`)).toMatch(/^plain [^\p{Cc}\p{Cf}\p{Zl}]*$/u);
});
