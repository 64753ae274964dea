import { expect, test } from "vitest";
import { runCommand } from "../../support/run-command.ts";
import { givenFiles } from "../config/support.ts";

// Guarantee: what `tollgate adapter test` says of a module of an operator's.

const MODULE = `export default {
  name: "own",
  create: () => ({ method: "POST", path: "/jobs", json: {} }),
  created: ({ status, json }) => (status === 503 ? { outcome: "unavailible" } : { outcome: "accepted", taskId: json.id }),
  poll: ({ taskId }) => ({ method: "GET", path: "/jobs/" + taskId }),
  polled: ({ json }) => ({ outcome: "task", status: json.state, task: { video_url: json.video } }),
};
const polled = (body) => ({ call: "polled", response: { body }, expect: { outcome: "task" } });
export const answers = [
  { call: "created", response: { body: { id: "j1" } }, expect: { outcome: "accepted" } },
  { call: "created", response: { status: 503 }, expect: { outcome: "unavailible" } },
  polled({ state: "THROTTLED" }),
  polled({ state: "done", video: "ftp://videos.example.com/1" }),
  polled({ state: "done", video: "https://videos.example.com/1" }),
];
`;

test("a row has what the gateway makes of it: a fault fails, and a state that may not be meant is noted", async () => {
  const { code, stdout } = await runCommand(["adapter", "test", givenFiles({ "own.mjs": MODULE })], {});
  const rows = stdout.split("\n").filter((line) => line.includes("answers["));
  expect(code).toBe(1);
  expect(rows).toEqual([
    'ok    answers[0] created: {"outcome":"accepted"}',
    "FAIL  answers[1] created: adapter own: created returned an outcome that is unknown here; HTTP 503, no code: no body",
    'ok    answers[2] polled: {"outcome":"task"}',
    "note  answers[2] polled: the gateway does not know THROTTLED: say in upstream.statuses what it means",
    'ok    answers[3] polled: {"outcome":"task"}',
    "note  answers[3] polled: without a usable video_url it counts as processing",
    'ok    answers[4] polled: {"outcome":"task"}',
  ]);
});

test("a row of an upload whose address the gateway cannot hand out fails", async () => {
  const uploads = `upload: () => ({ path: "/files" }),
  uploaded: ({ json }) => ({ outcome: "uploaded", url: json.url, expiresAt: undefined }),
  created:`;
  const row = (url: string) =>
    `{ call: "uploaded", response: { body: { url: "${url}" } }, expect: { outcome: "uploaded" } },`;
  const source = MODULE.replace("created:", uploads).replace(
    "answers = [",
    `answers = [${row("https://files.example.com/1.png")} ${row("http://files.example.com/1.png")}`,
  );
  const { code, stdout } = await runCommand(["adapter", "test", givenFiles({ "own.mjs": source })], {});
  expect(code).toBe(1);
  expect(stdout.split("\n").filter((line) => line.includes("] uploaded"))).toEqual([
    'ok    answers[0] uploaded: {"outcome":"uploaded"}',
    expect.stringMatching(
      /^FAIL {2}answers\[1\] uploaded: adapter own: uploaded returned an upload without an https url; HTTP 200/,
    ),
  ]);
});

test.each([
  ["has no default export", MODULE.replace("export default", "const own ="), "own.mjs: has no adapter"],
  ["lacks a function", MODULE.replace("polled:", "polld:"), "own.mjs: must have a function polled"],
  ["has a bad name", MODULE.replace('"own"', '"My own"'), "own.mjs:2: must have a name of a-z"],
])("a module that %s is refused, with a line only where the mistake is", async (_, source, message) => {
  const { code, stderr } = await runCommand(["adapter", "test", givenFiles({ "own.mjs": source })], {});
  expect({ code, isShown: stderr.includes(message) }).toEqual({ code: 1, isShown: true });
});
