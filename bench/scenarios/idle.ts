import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { cpuUs, processTree, residentBytes } from "../cpu.ts";
import type { Context, Outcome, Scenario } from "../scenario.ts";
import { startGateway } from "../subjects/gateway.ts";
import { judge, short } from "../targets.ts";
import type { Tree } from "../tree.ts";
import { apart } from "../world.ts";
import { median } from "./compare.ts";

const STARTS = 5;
/** Until what was needed for the start alone is let go. */
const SETTLE_SECONDS = 60;
const SECONDS = 60;

/** Cost of one way to start a gateway, and of the gateway without traffic. */
interface Idle {
  readyMs: number;
  mebibytes: number;
  commandsPerSecond: number;
  corePercent: number;
}

async function measure(
  { world, progress }: Context,
  tree: Tree,
  options: { main: string; env?: Record<string, string> },
): Promise<Idle> {
  const own = await apart(world, "idle");
  try {
    const ready: number[] = [];
    for (let start = 1; start < STARTS; start++) {
      const startedMs = performance.now();
      const running = await startGateway(own, tree, options);
      ready.push(performance.now() - startedMs);
      await running.stop();
    }
    const startedMs = performance.now();
    const running = await startGateway(own, tree, options);
    ready.push(performance.now() - startedMs);
    await delay(SETTLE_SECONDS * 1000);
    const pids = processTree(running.pid);
    const commands = async (): Promise<number> =>
      Number(/total_commands_processed:(\d+)/.exec(await own.redis.info("stats"))?.[1]);
    const [cpuBefore, commandsBefore] = [cpuUs(pids), await commands()];
    await delay(SECONDS * 1000);
    const idle = {
      readyMs: median(ready),
      mebibytes: residentBytes(pids) / 2 ** 20,
      commandsPerSecond: ((await commands()) - 1 - commandsBefore) / SECONDS,
      corePercent: (cpuUs(pids) - cpuBefore) / (SECONDS * 10_000),
    };
    await running.stop();
    progress(
      `  ${options.main}: ${short(idle.mebibytes)} MiB, ${short(idle.commandsPerSecond)} commands a second`,
    );
    return idle;
  } finally {
    await own.stop();
  }
}

/** Of a Node that does nothing, in milliseconds. */
function emptyNode(): number {
  const times = Array.from({ length: STARTS }, () => {
    const startedMs = performance.now();
    execFileSync(process.execPath, ["-e", "0"]);
    return performance.now() - startedMs;
  });
  return median(times);
}

export const idle: Scenario = {
  title: "Idle gateway",
  quick: false,
  needs: ["taskset", "nginx"],
  targets: ["idleMemory", "idleCommands", "idleCpu", "startUp"],
  async run(context: Context): Promise<Outcome> {
    const { trees, world } = context;
    const [tree] = trees as [Tree];
    const bundled = join(world.folder, "bundle");
    execFileSync(process.execPath, [join(tree.root, "tools/bundle.ts"), bundled, "--compile-cache"], {
      cwd: tree.root,
    });
    const [bundle, source] = [
      await measure(context, tree, {
        main: join(bundled, "src/main.js"),
        // As the Dockerfile.
        env: {
          NODE_COMPILE_CACHE: join(bundled, "cache"),
          ...{ NODE_COMPILE_CACHE_PORTABLE: "1", MALLOC_ARENA_MAX: "2" },
        },
      }),
      await measure(context, tree, { main: join(tree.root, "src/main.ts") }),
    ];
    const nodeMs = emptyNode();
    const row = (name: string, { readyMs, mebibytes, commandsPerSecond, corePercent }: Idle): string[] => [
      name,
      ...[readyMs, readyMs / nodeMs, mebibytes, commandsPerSecond, corePercent].map(short),
    ];
    return {
      method: `A gateway that nobody asks, ${SETTLE_SECONDS} s after its start, over ${SECONDS} s: as the image runs it (\`npm run bundle\`), and from source. Start-up is the median of ${STARTS}, until /readyz answers 200; \`node -e 0\` takes ${short(nodeMs)} ms here.`,
      tables: [
        {
          columns: ["", "ms to ready", "of `node -e 0`", "MiB", "commands/s to Redis", "% of a core"],
          rows: [row("bundle", bundle), row("source", source)],
        },
      ],
      verdicts: [
        judge("idleMemory", bundle.mebibytes),
        judge("idleCommands", bundle.commandsPerSecond),
        judge("idleCpu", bundle.corePercent),
        judge("startUp", bundle.readyMs / nodeMs),
      ],
      disturbed: [],
      figures: { bundle, source, nodeMs },
    };
  },
};
