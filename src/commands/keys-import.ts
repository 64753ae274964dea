import { open } from "node:fs/promises";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import type { Command } from "commander";
import type { Config } from "../config/config.ts";
import type { Written } from "../operations/access/operator-session.ts";
import { issueKey, KnownKeyError, requireNewKeysTier } from "../operations/keys/issue-key.ts";
import { readKey } from "../operations/keys/keys.ts";
import { inCommandWords, OperatorError } from "../records/operator-error.ts";
import type { RedisNodes } from "../redis/store-facts.ts";
import { keyOptions, type NewKeyFlags, newKey, withKeyStore } from "./keys-new.ts";
import { actorOf } from "./options.ts";
import { note, print } from "./output.ts";
import { requireConfig } from "./redis.ts";
import { listing, startProgress, table } from "./terminal.ts";

const BATCH = 100;
/** Problems that are listed; the others are counted. */
const PROBLEMS_MAX = 1000;

/** A problem names its line, never the key. */
interface Summary {
  imported: number;
  known: number;
  failed: number;
  problems: { line: number; message: string }[];
}

interface Line {
  number: number;
  token: string;
  /** Account, tier, and what should not be there. */
  fields: (string | undefined)[];
}

export function importCommand(): Command {
  return newKey("import", "take over a key that exists already, or many")
    .argument("[key]", "the key, sk_...; or - to read many from standard input")
    .option("--from <file>", "many from a file: one a line, or key,account,tier")
    .action(async (key: string | undefined, flags: NewKeyFlags & { from?: string }) => {
      const config = requireConfig();
      requireNewKeysTier(() => config.tiers, flags.tier);
      if ((key === undefined) === (flags.from === undefined)) {
        throw new OperatorError("give a key, or - to read keys from standard input, or --from with a file");
      }
      if (key !== undefined && key !== "-") return importOne(key, flags, config);
      const { result: summary, confirmed } = await importMany(flags, config);
      const ok = summary.failed === 0;
      print({ json: { ok, ...summary }, text: inWords(summary), ok, confirmed }, flags);
    });
}

async function importOne(token: string, flags: NewKeyFlags, config: Config): Promise<void> {
  const { result, confirmed } = await withKeyStore(config, (nodes) => takeOver(nodes, token, flags));
  const json = { key_id: result.keyId, account_id: result.accountId };
  print({ json, text: listing(json), confirmed }, flags);
}

/** Imports all keys of a file or of standard input. It is idempotent: an interrupted import may be repeated. */
async function importMany(flags: NewKeyFlags & { from?: string }, config: Config): Promise<Written<Summary>> {
  const summary: Summary = { imported: 0, known: 0, failed: 0, problems: [] };
  const input = await inputOf(flags.from);
  const progress = startProgress();
  try {
    const { confirmed } = await withKeyStore(config, async (nodes) => {
      for await (const batch of batches(input)) {
        await Promise.all(batch.map((line) => importLine(nodes, line, flags, config, summary)));
        const { imported, known, failed } = summary;
        progress.show(`${imported} imported, ${known} known before, ${failed} failed`);
      }
    });
    summary.problems.sort((a, b) => a.line - b.line);
    return { result: summary, confirmed };
  } finally {
    progress.done();
    // A file that was not read to its end: left open, the garbage collector would end the process with a stack.
    if (flags.from !== undefined) input.destroy();
  }
}

async function inputOf(file: string | undefined): Promise<Readable> {
  if (file === undefined) {
    if (process.stdin.isTTY) note("One key a line; Ctrl-D on a line of its own ends the list.");
    return process.stdin;
  }
  try {
    return (await open(file)).createReadStream();
  } catch (error) {
    throw new OperatorError(`${file} cannot be read (${(error as Error).message})`);
  }
}

/** Lines with their numbers, some at a time; blank ones, `#` comments and the heading of a table are left out. */
async function* batches(input: NodeJS.ReadableStream): AsyncGenerator<Line[]> {
  // By key, so that of two lines about one key the first is done before the second is looked at.
  let batch = new Map<string, Line>();
  let number = 0;
  try {
    for await (const line of createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY })) {
      number++;
      const text = (number === 1 ? line.replace(/^\ufeff/, "") : line).trim();
      if (text === "" || text.startsWith("#") || /^"?key"?(,|$)/i.test(text)) continue;
      const [token = "", ...fields] = fieldsOf(text);
      if (batch.size === BATCH || batch.has(token)) {
        yield [...batch.values()];
        batch = new Map();
      }
      batch.set(token, { number, token, fields });
    }
  } catch (error) {
    // Not a fault of Redis, to which other errors are attributed: a folder instead of a file, or a broken disk.
    throw new OperatorError(`the keys cannot be read (${(error as Error).message})`);
  }
  yield [...batch.values()];
}

async function importLine(
  nodes: RedisNodes,
  { number, token, fields }: Line,
  flags: NewKeyFlags,
  config: Config,
  summary: Summary,
): Promise<void> {
  const [account = flags.account, tier = flags.tier, ...more] = fields;
  try {
    if (more.length > 0) throw new OperatorError("a line has at most three fields: key,account,tier");
    if (fields.length === 0 && /[;\t]/.test(token)) {
      throw new OperatorError("the fields of a line are separated by commas: key,account,tier");
    }
    if (account === undefined) {
      throw new OperatorError("the key has no account; give it as the second field, or --account for all");
    }
    requireNewKeysTier(() => config.tiers, tier);
    const { known } = await takeOver(nodes, token, { ...flags, account, tier });
    summary[known ? "known" : "imported"]++;
  } catch (error) {
    // Anything else, such as a broken connection, ends the whole import.
    if (!(error instanceof OperatorError)) throw error;
    summary.failed++;
    if (summary.problems.length < PROBLEMS_MAX)
      summary.problems.push({ line: number, message: inCommandWords(error) });
  }
}

/** A key that was there before is fine when it is what is wanted, and stays as it is. @throws OperatorError when it is not */
async function takeOver(
  nodes: RedisNodes,
  token: string,
  flags: NewKeyFlags,
): Promise<{ keyId: string; accountId: string; known: boolean }> {
  try {
    return { ...(await issueKey(nodes, { ...keyOptions(flags), token }, actorOf(flags))), known: false };
  } catch (error) {
    if (!(error instanceof KnownKeyError)) throw error;
    await requireSame(nodes, error, flags);
    return { keyId: error.keyId, accountId: error.accountId, known: true };
  }
}

async function requireSame(
  nodes: RedisNodes,
  { keyId, accountId }: KnownKeyError,
  wanted: NewKeyFlags,
): Promise<void> {
  if (accountId !== (wanted.account ?? accountId)) {
    throw new OperatorError(
      `the key is known already: ${keyId} of account ${accountId}, not ${wanted.account}`,
    );
  }
  const key = await readKey(nodes, keyId, accountId);
  if (key?.tier !== wanted.tier) {
    throw new OperatorError(
      `the key is known already: ${keyId} with tier ${key?.tier}; \`tollgate keys set ${keyId} --tier ${wanted.tier}\` changes it`,
    );
  }
  const { status } = key;
  if (status === "active") return;
  const advice =
    status === "revoked" ? "that is for good" : `\`tollgate keys set ${keyId} --expires\` moves its end`;
  throw new OperatorError(`the key is known already: ${keyId}, which is ${status}; ${advice}`);
}

/** Fields of a line; empty ones are as good as absent. Neither keys nor ids can hold a comma. */
function fieldsOf(text: string): (string | undefined)[] {
  return text.split(",").map((field) => {
    const value = field.trim().replace(/^"(.*)"$/, "$1");
    return value === "" ? undefined : value;
  });
}

function inWords({ imported, known, failed, problems }: Summary): string {
  const counts = `${imported} imported, ${known} known before, ${failed} failed.`;
  if (failed === 0) return counts;
  const rows = problems.map(({ line, message }) => [line, message]);
  const more = failed > problems.length ? `\n... and ${failed - problems.length} more` : "";
  return `${table(["LINE", "PROBLEM"], rows)}${more}\n\n${counts}`;
}
