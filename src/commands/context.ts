import { once } from "node:events";
import path from "node:path";
import { Command, InvalidArgumentError } from "commander";
import type { Redis } from "ioredis";
import { type Config, readConfig } from "../config/config.ts";
import { printed } from "../config/problems.ts";
import { redisUrlRule } from "../config/setting-rules.ts";
import { durationMs } from "../config/setting-types.ts";
import { OperatorError } from "../store/accounts.ts";
import { createClient } from "../store/client.ts";
import { oneNode, type RedisNodes } from "../store/nodes.ts";
import { requireWritable } from "../store/operator-loss.ts";
import { inStoreWords, storeReason } from "../store/reasons.ts";
import { partitionsOf } from "../store/store-facts.ts";
import { hasColours, plain } from "./terminal.ts";

const CONNECT_TIMEOUT_MS = 2000;
/** Commands of the CLI read pages; the gateway's own timeout is for much smaller work. */
const COMMAND_TIMEOUT_MS = 10_000;

/** What a command has to say: one JSON object for programs, text for people. */
export interface Answer {
  json: Record<string, unknown>;
  text: string;
  /** False makes the exit code 1 though the answer is printed. */
  ok?: boolean;
}

/** A command whose options include `--json`. */
export function command(name: string, description: string): Command {
  return new Command(name)
    .description(description)
    .option("--json", "print one JSON object and nothing else");
}

/** Prints what a command answers. */
export function print(answer: Answer, options: { json?: boolean }): void {
  process.stdout.write(options.json ? `${JSON.stringify(answer.json)}\n` : `${answer.text}\n`);
  if (answer.ok !== false) return;
  process.exitCode = 1;
  if (options.json) note(answer.text);
}

/** Waits while the reader is slower than the store. */
export async function writeOut(text: string): Promise<void> {
  if (text !== "" && !process.stdout.write(text)) await once(process.stdout, "drain");
}

/** One JSON object on standard output whose list is written page by page. */
export function jsonList(name: string) {
  let before = `{"${name}":[`;
  return {
    async write(items: readonly object[]): Promise<void> {
      if (items.length === 0) return;
      await writeOut(before + items.map((item) => JSON.stringify(item)).join());
      before = ",";
    },
    /** Writes the last member after the list, unless it is undefined. */
    end(last: string, value: string | undefined): Promise<void> {
      const member = value === undefined ? "" : `,"${last}":${JSON.stringify(value)}`;
      return writeOut(`${before === "," ? "" : before}]${member}}\n`);
    },
  };
}

/** A line for people on standard error. */
export function note(text: string): void {
  process.stderr.write(`${hasColours(process.stderr) ? text : plain(text)}\n`);
}

/** Masks API keys in a message: errors end up in logs and tickets. A semicolon at the end belongs to the message. */
export const withoutKeys = (text: string): string =>
  text.replaceAll(/\bsk_[\x21-\x2b\x2d-\x7e]{5,}/g, (key) => (key.endsWith(";") ? "sk_...;" : "sk_..."));

/** The configuration of this machine. @throws OperatorError that lists its problems */
export function requireConfig(): Config {
  const { loaded, problems } = readConfig({ env: process.env });
  if (loaded) return loaded.config;
  throw new OperatorError(`the configuration cannot be loaded:\n${problems.map(printed).join("\n")}`);
}

/** `REDIS_URL`, else the config's. May hold a password. @throws OperatorError for what the gateway would not take */
export function redisUrl(): string {
  const url = process.env.REDIS_URL;
  if (!url) return requireConfig().store.redisUrl;
  const problem = redisUrlRule(url);
  if (problem !== undefined) throw new OperatorError(`REDIS_URL ${problem}`);
  return url;
}

/** Runs one command's work against Redis, and closes the connection whatever happens. */
export async function withRedis<T>(work: (nodes: RedisNodes) => Promise<T>): Promise<T> {
  const redis = await connect(redisUrl());
  const nodes = oneNode(redis);
  try {
    // The very first use of a store fixes its partitions, which is the config's to say.
    await partitionsOf(nodes, () => requireConfig().store.partitions);
    return await work(nodes);
  } catch (error) {
    if (error instanceof OperatorError || !(error instanceof Error)) throw error;
    // Redis's own words, or those of a broken connection.
    throw new Error(`Redis at ${placeOf(redisUrl())}: ${inStoreWords(error)}`, { cause: error });
  } finally {
    redis.disconnect();
  }
}

/** The same for work that writes. @throws OperatorError also while the store is older than what it confirmed */
export const withRedisToWrite = <T>(work: (nodes: RedisNodes) => Promise<T>): Promise<T> =>
  withRedis(async (nodes) => {
    await requireWritable(nodes, readConfig({ env: process.env }).loaded?.config.store.journal);
    return work(nodes);
  });

/** What `store.tls_ca` says, where the configuration of this machine is valid; else Node's own authorities count. */
const tlsCaFor = (url: string): string | undefined =>
  /^rediss:/i.test(url) ? readConfig({ env: process.env }).loaded?.config.store.tlsCa : undefined;

/** A client that is connected within two seconds. @throws OperatorError in one sentence that says what to do */
export async function connect(url: string): Promise<Redis> {
  const redis = createClient(url, COMMAND_TIMEOUT_MS, tlsCaFor(url));
  const failed = Promise.withResolvers<never>();
  // On its own the client would try again and again. It needs a listener later on, too.
  redis.on("error", failed.reject);
  const late = new Error("no answer within 2 seconds");
  const timer = setTimeout(() => failed.reject(late), CONNECT_TIMEOUT_MS);
  try {
    await Promise.race([failed.promise, redis.connect()]);
    return redis;
  } catch (error) {
    redis.disconnect();
    // Else it waits two more seconds for the other side to hang up.
    redis.stream?.destroy();
    const { why, advice = "see Redis's log, and that REDIS_URL is right" } = storeReason(error);
    throw new OperatorError(`Redis at ${placeOf(url)} cannot be used (${why}); ${advice}`);
  } finally {
    clearTimeout(timer);
  }
}

/** Host and port of an address, without user and password. */
export function placeOf(url: string): string {
  return URL.canParse(url) ? new URL(url).host || url : "the address in REDIS_URL";
}

/** Parses an option that is a whole number within bounds, both inclusive. */
export const whole =
  (least: number, most: number) =>
  (text: string): number => {
    const value = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= least && value <= most) return value;
    throw new InvalidArgumentError(`It must be a whole number from ${least} to ${most}.`);
  };

/** Parses an option that names a file; empty is a shell variable that was not set. */
export function fileName(text: string): string {
  if (text !== "") return text;
  throw new InvalidArgumentError("It must be the name of a file.");
}

/** Parses an option that is a moment to come, ISO 8601. */
export function futureMs(text: string): number {
  const atMs = momentMs(text);
  if (atMs === undefined) {
    throw new InvalidArgumentError("It must be an ISO 8601 time such as 2030-01-31T00:00:00Z.");
  }
  if (atMs <= Date.now()) throw new InvalidArgumentError("It must lie in the future.");
  return atMs;
}

/** Parses an option that is a moment: ISO 8601, or how long ago. */
export function pastMs(text: string): number {
  const agoMs = durationMs(text);
  const atMs = agoMs === undefined ? momentMs(text) : Date.now() - agoMs;
  if (atMs !== undefined && atMs >= 0) return atMs;
  throw new InvalidArgumentError(
    "It must be an ISO 8601 time such as 2030-01-31, or how long ago, such as 7d.",
  );
}

/** A path as one would type it here. */
export const shownPath = (file: string): string => {
  const relative = path.relative(process.cwd(), file);
  return relative === "" || relative.startsWith("..") ? file : relative;
};

/** Unix ms of an ISO 8601 time; undefined if it is none. */
function momentMs(text: string): number | undefined {
  const isIso = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d))?$/.test(text);
  const atMs = isIso && isDay(text.slice(0, 10)) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(atMs) ? undefined : atMs;
}

/** Whether the month has the day: to `Date`, 31 February is 3 March. */
function isDay(text: string): boolean {
  const atMs = Date.parse(text);
  return !Number.isNaN(atMs) && new Date(atMs).toISOString().startsWith(text);
}
