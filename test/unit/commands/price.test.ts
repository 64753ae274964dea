import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { childEnv } from "../../support/child-env.ts";
import { givenFiles } from "../config/support.ts";

const CLI = path.resolve("src/cli.ts");

/** Runs `tollgate price`; what it is given as `input` stands on its standard input. */
function price(args: string[], input = "", env: Record<string, string> = {}) {
  return new Promise<{ code: number; stdout: string; stderr: string }>((done) => {
    const child = execFile(
      process.execPath,
      [CLI, "price", ...args],
      { env: { ...childEnv(), ...env } },
      (error, stdout, stderr) => done({ code: error ? Number(error.code) : 0, stdout, stderr }),
    );
    child.stdin?.end(input);
  });
}

const PRO = "gen2-pro/text-to-video";

test("a body costs what the gateway would charge for it, defaults written out", async () => {
  const file = givenFiles({ "body.json": '{"prompt":"A paper boat"}' });
  const [fromFile, fromInput, words] = await Promise.all([
    price([PRO, file, "--json"]),
    price([`/api/v1/${PRO}`, "-", "--json"], '{"prompt":"A paper boat","duration":15,"quality":"high"}'),
    price([PRO, "-"], '{"prompt":"A paper boat"}'),
  ]);
  const prices_file = path.resolve("config/prices/reference.yaml");
  expect(JSON.parse(fromFile.stdout)).toEqual({ ok: true, endpoint: PRO, price: 150, prices_file });
  expect(JSON.parse(fromInput.stdout)).toMatchObject({ price: 630 });
  expect(words).toEqual({
    code: 0,
    stdout: `${PRO}: 150 credits, by config/prices/reference.yaml\n`,
    stderr: "",
  });
});

test("a body that the gateway would refuse has no price, but all its problems", async () => {
  const [invalid, twice] = await Promise.all([
    price([PRO, "-", "--json"], '{"qualty":"high","duration":11}'),
    price([PRO, "-", "--json"], '{"prompt":"a","prompt":"b"}'),
  ]);
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
  const [flat, table, typo] = await Promise.all([
    price([PRO, "--json"], "", { TOLLGATE_CONFIG: file }),
    price(["gen2-pro/storyboard"]),
    price(["gen2-pro/text-to-vido"]),
  ]);
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
    "",
    { TOLLGATE_CONFIG: file },
  );
  expect(code).toBe(1);
  expect(JSON.parse(stdout).problems).toEqual([
    { path: "/videoUrl", message: "videoUrl must begin with https://own.example.com/" },
  ]);
});
