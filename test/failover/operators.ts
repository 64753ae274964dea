import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import type { Customer } from "../fault/client.ts";
import type { Fleet } from "../fault/fleet.ts";
import { programOf } from "../fault/gateways.ts";
import { createRandom, type Random, seedFor } from "../fault/random.ts";
import { childEnv } from "../support/child-env.ts";

/** One command of an operator, and what it was told. Times are Unix ms. */
export interface OperatorEvent {
  kind: "create" | "grant" | "revoke";
  accountId: string;
  /** Empty for a grant, and for a key that nobody was told of. */
  keyId: string;
  credits: number;
  /** Of a grant. */
  reference: string;
  sentMs: number;
  endedMs: number;
  /** It ended well, so that what it did must last. */
  acknowledged: boolean;
  error: string;
}

/** Repeats of a command that did not end well: each does no harm. */
const TRIES = 3;
/** Beyond the command line's own patience with the store. */
const PATIENCE_MS = 30_000;
const CREDITS = 1000;
/** One after the other, and from the beginning. */
const KINDS = ["create", "create", "grant", "revoke"] as const;

/** An operator at the command line: makes keys, grants credits, revokes keys, one command after the other. */
export interface Operators {
  events: OperatorEvent[];
  /** Keys that were made here; revoked ones too. */
  customers: Customer[];
  /** The next command, with its repeats. */
  work(): Promise<void>;
}

export function createOperators(fleet: Fleet, redisUrl: string, customers: readonly Customer[]): Operators {
  const random = createRandom(seedFor(fleet.options.seed, "operators"));
  let done = 0;
  const operators: Operators = {
    events: [],
    customers: [],
    async work() {
      const revocable = operators.customers.filter(({ keyId }) => !isRevoked(operators.events, keyId));
      const kind = KINDS[done++ % KINDS.length]!;
      if (kind === "create") await create();
      else if (kind === "revoke" && revocable.length > 0) await revoke(random.pick(revocable));
      else await grant(random.pick(customers));
    },
  };
  const run = async (
    args: string[],
    about: Partial<OperatorEvent>,
  ): Promise<OperatorEvent & { output: string }> => {
    const sentMs = Date.now();
    const { output, error } = await runCommand(fleet, redisUrl, args);
    const details = { credits: 0, accountId: "", keyId: "", reference: "", ...about, kind: about.kind! };
    const event = { ...details, sentMs, endedMs: Date.now(), acknowledged: error === "", error };
    operators.events.push(event);
    return { ...event, output };
  };
  const repeat = async (args: string[], about: Partial<OperatorEvent>): Promise<void> => {
    for (let tries = 0; tries < TRIES; tries++) {
      const { acknowledged } = await run(args, about);
      if (acknowledged) return;
    }
  };
  /** Not repeated: each repeat makes another key. */
  const create = async (): Promise<void> => {
    const accountId = `new_${idOf(random)}`;
    const limits = ["--rate-limit", "100000", "--max-concurrent", "1000", "--daily-limit", "1000000"];
    const args = ["keys", "create", "--account", accountId, "--credits", String(CREDITS), ...limits];
    const { output, acknowledged } = await run(args, { kind: "create", accountId, credits: CREDITS });
    if (!acknowledged) return;
    const { key, key_id: keyId } = JSON.parse(output) as { key: string; key_id: string };
    operators.events.at(-1)!.keyId = keyId;
    operators.customers.push({ accountId, keyId, key });
    const facts = { granted: CREDITS, rate_limit: 100_000, max_concurrent: 1000, daily_limit: 1_000_000 };
    fleet.accounts.push({ accountId, keyId, ...facts });
  };
  const grant = ({ accountId }: Customer): Promise<void> => {
    const reference = `order ${idOf(random)}`;
    const about = { kind: "grant" as const, accountId, credits: CREDITS, reference };
    return repeat(["credits", "grant", accountId, String(CREDITS), "--reference", reference], about);
  };
  const revoke = ({ accountId, keyId }: Customer): Promise<void> =>
    repeat(["keys", "revoke", keyId], { kind: "revoke", accountId, keyId });
  return operators;
}

/** True if somebody has tried to: such a key may be either. */
export const isRevoked = (events: readonly OperatorEvent[], keyId: string): boolean =>
  events.some((event) => event.kind === "revoke" && event.keyId === keyId);

/** By the seed, but for what tells runs apart. */
const idOf = (random: Random): string => `${random.int(0, 1e9)}-${randomBytes(4).toString("hex")}`;

function runCommand(
  { options: { root, folder } }: Fleet,
  redisUrl: string,
  args: readonly string[],
): Promise<{ output: string; error: string }> {
  const env = {
    ...childEnv(),
    REDIS_URL: redisUrl,
    TOLLGATE_CONFIG: join(root, "config/tollgate.yaml"),
  };
  const command = [programOf(root, "cli"), ...args, "--json"];
  return new Promise((resolve) => {
    execFile(
      process.execPath,
      command,
      { cwd: folder, env, timeout: PATIENCE_MS },
      (error, stdout, stderr) => {
        resolve({ output: stdout, error: error ? stderr.trim() || error.message : "" });
      },
    );
  });
}
