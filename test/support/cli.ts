import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { expect, inject } from "vitest";
import { issueKey, type KeyOptions } from "../../src/operations/keys/issue-key.ts";
import { cliActor } from "../../src/records/actor.ts";
import { keyRef, partitionOf } from "../../src/records/names.ts";
import { oneNode, partitionsOf } from "../../src/redis/store-facts.ts";
import { childEnv } from "./child-env.ts";
import { type Ran, runCommand } from "./run-command.ts";
import { createStage, randomId, type TestConnection } from "./store.ts";

export const ROOT = resolve(import.meta.dirname, "../..");
/** The command line of this run's bundle, which starts with a quarter of the CPU. */
export const cliFile = (): string => join(inject("bundle"), "src/cli.js");

/** A journal folder that knows no store: that of this checkout knows the Redis of its last `npm start`. */
const NO_JOURNAL = join(tmpdir(), "tollgate-tests-without-a-journal");

const namesJournal = (file: string): boolean =>
  existsSync(file) && readFileSync(file, "utf8").includes("journal");

/** All that the command line finds in its environment. */
export const cliEnv = (env: Record<string, string> = {}): Record<string, string> => ({
  ...childEnv(),
  REDIS_URL: inject("redisUrl"),
  ...(namesJournal(env.TOLLGATE_CONFIG ?? "") ? {} : { JOURNAL: NO_JOURNAL }),
  ...env,
});

/**
 * Runs the command line as a process of its own: slow, and as real as it gets.
 * @param nodeArgs such as a smaller stack
 */
export function runProcess(
  args: readonly string[],
  env: Record<string, string> = {},
  nodeArgs: readonly string[] = [],
): Promise<Ran> {
  const options = { cwd: ROOT, env: cliEnv(env), timeout: 100_000, maxBuffer: 64e6 };
  return new Promise((done) => {
    execFile(process.execPath, [...nodeArgs, cliFile(), ...args], options, (error, stdout, stderr) => {
      done({ code: error ? Number(error.code ?? -1) : 0, stdout, stderr });
    });
  });
}

/** Runs the command line in this process, with the Redis of this run. */
export const runHere = (
  args: readonly string[],
  env: Record<string, string> = {},
  options: { stdin?: string } = {},
): Promise<Ran> => runCommand(args, cliEnv(env), options);

/** Runs with --json; what is printed must be one JSON object and nothing else. */
// biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape.
export async function json(...args: string[]): Promise<any> {
  const { stdout, stderr, code } = await runHere([...args, "--json"]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(stdout.trimEnd().split("\n")).toHaveLength(1);
  return JSON.parse(stdout);
}

/** Runs something that must fail in words: nothing on stdout, no stack trace. */
export async function refusal(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await runHere([...args, "--json"]);
  expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
  expect(stderr).toMatch(/^error: ./);
  expect(stderr).not.toMatch(/\n\s+at /);
  return stderr;
}

/** An account with 1000 credits and one key, and the store's operations on it. */
export async function givenCliAccount(connection: TestConnection, options: KeyOptions = {}) {
  const { redis } = connection;
  const made = await issueKey(
    oneNode(redis),
    { accountId: randomId("acc"), credits: 1000, ...options },
    cliActor(),
  );
  const partition = partitionOf(made.accountId, await partitionsOf(oneNode(redis)));
  const stage = createStage(connection, { clock: "redis", partition });
  return { ...made, partition, stage, ref: keyRef(made.keyId, made.accountId, partition) };
}
