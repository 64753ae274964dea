import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { childEnv } from "../../support/child-env.ts";
import { type Ran, runCommand } from "../../support/run-command.ts";
import { givenFiles } from "../config/support.ts";

/** Runs `tollgate price`. */
const price = (args: string[], env: Record<string, string> = {}): Promise<Ran> =>
  runCommand(["price", ...args], env);

const bodyFile = (text: string): string => givenFiles({ "body.json": text });

const PRO = "gen2-pro/text-to-video";

test("a body costs what the gateway would charge for it, defaults written out", async () => {
  const file = bodyFile('{"prompt":"A paper boat"}');
  const dearest = bodyFile('{"prompt":"A paper boat","duration":15,"quality":"high"}');
  const least = await price([PRO, file, "--json"]);
  const most = await price([`/api/v1/${PRO}`, dearest, "--json"]);
  const words = await price([PRO, file]);
  const prices_file = path.resolve("config/prices/reference.yaml");
  expect(JSON.parse(least.stdout)).toEqual({
    ok: true,
    endpoint: PRO,
    price: 150,
    list_price: 150,
    multiplier: 1,
    prices_file,
  });
  expect(JSON.parse(most.stdout)).toMatchObject({ price: 630 });
  expect(words).toEqual({
    code: 0,
    stdout: `${PRO}: 150 credits, by config/prices/reference.yaml\n`,
    stderr: "",
  });
});

// A process of its own: a busy machine takes long to start one.
test("a body is read from standard input", { timeout: 180_000 }, async () => {
  const args = [path.resolve("src/cli.ts"), "price", PRO, "-", "--json"];
  const ran = promisify(execFile)(process.execPath, args, { env: childEnv() });
  ran.child.stdin!.end('{"prompt":"A paper boat"}');
  expect(JSON.parse((await ran).stdout)).toMatchObject({ ok: true, price: 150 });
});

test("a body that the gateway would refuse has no price, but all its problems", async () => {
  const invalid = await price([PRO, bodyFile('{"qualty":"high","duration":11}'), "--json"]);
  const twice = await price([PRO, bodyFile('{"prompt":"a","prompt":"b"}'), "--json"]);
  expect(invalid.code).toBe(1);
  expect(JSON.parse(invalid.stdout)).toEqual({
    ok: false,
    endpoint: PRO,
    problems: [
      { path: "/qualty", message: "qualty is not a known parameter; did you mean quality?" },
      { path: "/prompt", message: "prompt is required" },
      { path: "/duration", message: "duration must be one of 10, 15" },
    ],
  });
  expect(invalid.stderr).toContain("did you mean quality?");
  expect(JSON.parse(twice.stdout).problems).toMatchObject([{ message: /duplicate name/ }]);
});

test("without a body the prices are listed, of the price file that is configured", async () => {
  const file = givenFiles({ "tollgate.yaml": `prices: ${path.resolve("config/prices/overview.yaml")}` });
  const flat = await price([PRO, "--json"], { TOLLGATE_CONFIG: file });
  const table = await price(["gen2-pro/storyboard"]);
  const typo = await price(["gen2-pro/text-to-vido"]);
  expect(JSON.parse(flat.stdout).price).toBe(200);
  expect(table.stdout).toMatch(/NFRAMES {2}CREDITS\n10 +150\n15 +270\n25 +270\n$/);
  expect(typo).toMatchObject({ code: 1, stdout: "" });
  expect(typo.stderr).toContain(`did you mean ${PRO}?`);
});

test("the config in force counts: its source host, too", async () => {
  const file = givenFiles({ "tollgate.yaml": "source_video_host: https://own.example.com" });
  writeFileSync(
    path.join(path.dirname(file), "body.json"),
    '{"videoUrl":"https://videos.example.com/a.mp4"}',
  );
  const { code, stdout } = await price(
    ["gen2/watermark-remove", path.join(path.dirname(file), "body.json"), "--json"],
    { TOLLGATE_CONFIG: file },
  );
  expect(code).toBe(1);
  expect(JSON.parse(stdout).problems).toEqual([
    { path: "/videoUrl", message: "videoUrl must begin with https://own.example.com/" },
  ]);
});
