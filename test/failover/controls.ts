import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { RedisBinary } from "../../src/sandbox/redis-server.ts";
import { type Criterion, formatVerdict } from "../fault/checker.ts";
import { writeHistory } from "../fault/history.ts";
import { seedFor } from "../fault/random.ts";
import { REFUND_AFTER_TOLD } from "../fault/scenarios/controls-webhooks.ts";
import { bundleSources, copySources, type Patch } from "../fault/tree.ts";
import type { Topology } from "./driver.ts";
import { GATEWAYS, type PlannedRound } from "./plan.ts";
import { runRounds } from "./rounds.ts";
import { PARTITIONS } from "./slots.ts";
import type { Fault } from "./strikes.ts";

/** A seeded bug, what brings it to light, and what the checker must say of it. */
export interface Control {
  name: string;
  topology: Topology;
  /** On Valkey or Redis from 7.2 on, in which WAIT counts a client's own writes alone. */
  needsNewer?: true;
  patches: Patch[];
  fault: Fault;
  /** All gateways are killed along with the node. */
  killsGateways: boolean;
  /** One round as in the campaign of webhooks. */
  webhooks?: true;
  /** The criterion that must be unmet. */
  caughtBy: string;
  /** Text that one of its violations must have, where the criterion has several reasons. */
  violation?: RegExp;
}

const TELLING = { fault: "lag, kill", killsGateways: false, webhooks: true } as const;

export const CONTROLS: readonly Control[] = [
  {
    name: "no WAIT: a charge is answered as soon as the primary has it",
    topology: "trio",
    patches: [
      {
        file: "src/redis/confirmation.ts",
        from: "return Number(waited?.[1]) >= replicas;",
        to: "return true;",
      },
    ],
    fault: "lag, kill",
    killsGateways: true,
    caughtBy: "charged exactly once, nothing lost",
  },
  {
    name: "no mark before WAIT",
    topology: "trio",
    needsNewer: true,
    patches: [
      {
        file: "src/redis/confirmation.ts",
        from: ".eval(MARK, 1, mark, MARK_MS)",
        to: `.ping(\`\${mark} \${MARK_MS}\`)`,
      },
    ],
    fault: "lag, kill",
    killsGateways: true,
    caughtBy: "charged exactly once, nothing lost",
  },
  {
    name: "no charges of the last seconds are sent again, and a replica that lags is promoted",
    topology: "trio",
    patches: [
      {
        file: "src/durability/losses/confirmed-charges.ts",
        from: "const place = places[next];",
        to: "return;",
      },
    ],
    fault: "stale",
    killsGateways: false,
    caughtBy: "charged exactly once, nothing lost",
  },
  {
    name: "the error of a partition that moves counts as the script's own",
    topology: "cluster",
    patches: [
      {
        file: "src/redis/script-errors.ts",
        from: '[/^Script attempted to access a non local key in a cluster node/, "transient"],',
        to: "",
      },
      {
        file: "src/redis/script-errors.ts",
        from: "/^MOVED |^ERR Script attempted to access a non local key/",
        to: "/^MOVED /",
      },
    ],
    fault: "move slowly",
    killsGateways: false,
    caughtBy: "charged exactly once, nothing lost",
  },
  {
    name: "the client sends again what was in flight, as ioredis' Cluster does",
    topology: "server",
    patches: [
      "autoResendUnfulfilledCommands: false,",
      "enableOfflineQueue: false,",
      "maxRetriesPerRequest: 0,",
    ].map((from) => ({ file: "src/redis/client.ts", from, to: "" })),
    fault: "reset",
    killsGateways: false,
    caughtBy: "nothing sent twice",
  },
  {
    name: "a delivery is forgotten as it is leased, so that a killed gateway or a lost result drops it",
    topology: "trio",
    patches: [
      {
        file: "lua/webhooks/lease-deliveries.lua",
        from: 'call("ZADD", queue, lease_end, event_id)',
        to: 'call("ZREM", queue, event_id)',
      },
    ],
    ...TELLING,
    caughtBy: "each end is told, or listed as failed",
    violation: /was never told/,
  },
  {
    name: "a message is sent to any address",
    topology: "trio",
    patches: [
      {
        file: "src/webhooks/public-address.ts",
        from: "if (!isPublic(parsed)) return NOT_PUBLIC;",
        to: "if (!isPublic(parsed)) return undefined;",
      },
    ],
    ...TELLING,
    caughtBy: "no inner address is called, no redirect followed",
    violation: /to an inner address/,
  },
  {
    name: "a failed task is told, and refunded by the next poll",
    topology: "cluster",
    patches: REFUND_AFTER_TOLD,
    ...TELLING,
    caughtBy: "slot and refund are booked before it is told",
    violation: /while it was not refunded/,
  },
];

/** Each must be caught within so many rounds. */
const ROUNDS = 6;
/** A store that is refused for what it has lost does not come back. */
const WAIT_MAX_MS = 15_000;
const QUIESCENCE_MAX_MS = 14_000;

interface ControlOptions {
  seed: number;
  folder: string;
  /** The source tree that is patched. */
  root: string;
  progress(line: string): void;
  /** Finds Valkey, or Redis from 7.2 on. */
  newer(): Promise<RedisBinary>;
}

/** Runs rounds on a copy of the sources that has the bug; met when the checker reports it. */
export async function runControl(control: Control, options: ControlOptions): Promise<Criterion> {
  const { name, topology, patches, needsNewer, webhooks = false, caughtBy, violation = /(?:)/ } = control;
  const folder = join(options.folder, name.replace(/\W+/g, "-").slice(0, 40));
  mkdirSync(folder, { recursive: true });
  const root = copySources(options.root, join(folder, "tree"), patches);
  if (webhooks) await bundleSources(root);
  const outcome = await runRounds({
    scenario: name,
    seed: seedFor(options.seed, name),
    folder,
    root,
    progress: options.progress,
    topology,
    rounds: roundsOf(control),
    binary: needsNewer ? await options.newer() : undefined,
    waitMaxMs: WAIT_MAX_MS,
    quiescenceMaxMs: QUIESCENCE_MAX_MS,
    stopsAtViolation: true,
    webhooks,
  });
  writeHistory(folder, outcome.history);
  const { verdict, rounds } = outcome;
  const caught = verdict.criteria.find(
    (criterion) => criterion.name === caughtBy && criterion.violations.some((text) => violation.test(text)),
  );
  const first = caught?.violations.find((text) => violation.test(text));
  const figure = caught
    ? `caught in round ${rounds.length}: ${caught.violations.length} violations, such as: ${first}`
    : `not caught in ${rounds.length} rounds`;
  const violations = caught ? [] : [`"${caughtBy}" is met in spite of it:\n${formatVerdict(verdict)}`];
  return { name, met: caught !== undefined, figure, violations };
}

const roundsOf = ({ fault, killsGateways, webhooks }: Control): PlannedRound[] =>
  Array.from({ length: webhooks ? 1 : ROUNDS }, (_, at) => ({
    fault,
    partition: (at * 29 + 5) % PARTITIONS,
    killed: killsGateways ? Array.from({ length: GATEWAYS }, (_, slot) => slot) : [],
    beforeMs: webhooks ? 6000 : 1000,
    afterMs: webhooks ? 3000 : 500,
    awayMs: 1500,
  }));
