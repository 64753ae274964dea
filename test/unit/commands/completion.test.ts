import { spawnSync } from "node:child_process";
import { beforeAll, describe, expect, test } from "vitest";
import { bash, fish, placesOf, zsh } from "../../../src/commands/completion.ts";
import { commandPath, commandsOf, tollgateProgram } from "../../../src/commands/program.ts";

const PLACES = placesOf(tollgateProgram());

/** Completions that bash offers after these words; the last one is being typed. */
function offered(...words: string[]): string[] {
  const line = ["tollgate", ...words];
  const set = `COMP_WORDS=(${line.map((word) => `'${word}'`).join(" ")}); COMP_CWORD=${line.length - 1}`;
  const script = `${bash(PLACES)}\n${set}; _tollgate; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const { stdout, stderr } = spawnSync("bash", ["--norc", "-c", script], { encoding: "utf8" });
  expect(stderr).toBe("");
  return stdout.split("\n").filter((word) => word !== "");
}

describe("bash", () => {
  beforeAll(() => {
    expect(spawnSync("bash", ["--version"]).status, "this test needs bash").toBe(0);
  });

  test("offers commands, by what was typed of them", () => {
    expect(offered("")).toEqual(PLACES[0]?.commands.map(({ name }) => name));
    expect(offered("k")).toEqual(["keys"]);
    expect(offered("keys", "ro")).toEqual(["rotate"]);
    expect(offered("ledger", "")).toEqual(["verify", "export"]);
  });

  test("offers every option of every command", () => {
    for (const command of commandsOf(tollgateProgram())) {
      const words = commandPath(command).split(" ").filter(Boolean);
      const long = command.options.map((option) => option.long ?? "");
      expect(offered(...words, "--")).toEqual([...long, "--help"]);
    }
  });

  test("offers what a value may be, with a blank or an equals sign", () => {
    expect(offered("ledger", "export", "--format", "")).toEqual(["ndjson", "csv"]);
    expect(offered("ledger", "export", "--format", "=", "c")).toEqual(["csv"]);
    expect(offered("ledger", "export", "--format", "=")).toEqual(["ndjson", "csv"]);
    expect(offered("completion", "z")).toEqual(["zsh"]);
    expect(offered("keys", "list", "--json", "--st")).toEqual(["--status"]);
  });

  test("offers files where files belong, and nothing where it cannot know", () => {
    expect(offered("config", "check", "READ")).toEqual(["README.md"]);
    expect(offered("ledger", "export", "--output", "package-l")).toEqual(["package-lock.json"]);
    expect(offered("keys", "create", "--account", "")).toEqual([]);
    expect(offered("keys", "create", "--account", "keys", "--ti")).toEqual(["--tier"]);
  });
});

test("zsh and fish know the same commands and options", () => {
  const words = PLACES.flatMap(({ commands, flags }) => [
    ...commands.map(({ name }) => name),
    ...flags.flatMap(({ names }) => names),
  ]);
  const [inZsh, inFish] = [zsh(PLACES), fish(PLACES)];
  expect(words.filter((word) => !inZsh.includes(word))).toEqual([]);
  expect(words.filter((word) => !inFish.includes(word.replace(/^--?/, "")))).toEqual([]);
});
