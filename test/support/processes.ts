import { readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { inject } from "vitest";
import { startChild } from "../../src/sandbox/child.ts";
import { childEnv } from "./child-env.ts";
import { until } from "./gateway.ts";

const ROOT = resolve(import.meta.dirname, "../..");

/** How a program ended. */
export interface Ended {
  /** Such as "exit code 0". */
  how: string;
  stdout: string;
  stderr: string;
}

export type Program = Awaited<ReturnType<typeof startProgram>>;

/** Settings by section, as in the config file. */
export type Sections = Record<string, Record<string, unknown>>;

/**
 * Starts the gateway as its own process, from the bundle of this run, without waiting for anything.
 * @param journal folder that several processes share; one of its own when left out
 * @param openFiles files and sockets that it may open; as many as we may when left out
 * @param cwd its working directory
 * @param fromSources for tests that look at how modules are loaded
 */
export async function startProgram(
  env: Record<string, string>,
  sections: Sections = {},
  journal?: string,
  openFiles?: number,
  cwd = ROOT,
  fromSources = false,
) {
  const dir = await mkdtemp(join(tmpdir(), "tollgate-program-"));
  const file = join(dir, "tollgate.yaml");
  const store = {
    journal: journal ?? join(dir, "journal"),
    allow_no_persistence: true,
    ...sections.store,
  };
  // JSON is YAML too.
  await writeFile(file, JSON.stringify({ ...sections, store }));
  const own = serveArguments(fromSources ? join(ROOT, "src/main.ts") : join(inject("bundle"), "src/main.js"));
  const limited = ["-c", `ulimit -n ${openFiles} && exec "$0" "$@"`, process.execPath, ...own];
  const [command, args] = openFiles === undefined ? [process.execPath, own] : (["sh", limited] as const);
  const child = await startChild(command, args, {
    cwd,
    env: { ...childEnv(), TOLLGATE_CONFIG: file, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let stdout = "";
  let stderr = "";
  child.process.stdout?.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
  });
  child.process.stderr?.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  const closed = new Promise<void>((done) => child.process.once("close", () => done()));

  return {
    pid: child.pid,
    configFile: file,
    /** Log lines so far. */
    logs: (): Record<string, unknown>[] =>
      stdout
        .split("\n")
        .filter((line) => line.startsWith("{") && line.endsWith("}"))
        .map((line) => JSON.parse(line) as Record<string, unknown>),
    signal: (name: NodeJS.Signals): boolean => child.process.kill(name),
    ended: async (): Promise<Ended> => {
      const how = await child.ended;
      await closed;
      return { how, stdout, stderr };
    },
    async stop(): Promise<void> {
      await child.stop(5000);
      await rm(dir, { recursive: true, force: true });
    },
  };
}

/** Arguments that `npm run serve` gives to node, with this file as its program. */
function serveArguments(main: string): string[] {
  const { scripts } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
  const words = (scripts.serve as string).replace(/^.*exec node /, "").split(" ");
  return words.map((word) => (word === "src/main.ts" ? main : word));
}

/** A gateway in its own process on free ports, once it is ready. */
export async function startGatewayProcess(options: {
  redisUrl: string;
  upstreamUrl: string;
  config?: Sections;
  journal?: string;
  env?: Record<string, string>;
  openFiles?: number;
  cwd?: string;
  fromSources?: boolean;
}) {
  const { redisUrl, upstreamUrl, config, journal, env, openFiles, cwd, fromSources } = options;
  const program = await startProgram(
    {
      HOST: "127.0.0.1",
      PORT: "0",
      ADMIN_PORT: "0",
      REDIS_URL: redisUrl,
      UPSTREAM_URL: upstreamUrl,
      UPSTREAM_API_KEY: "upstream-secret",
      ...env,
    },
    config,
    journal,
    openFiles,
    cwd,
    fromSources,
  );
  try {
    const listening = () => program.logs().find((line) => line.msg === "tollgate is listening");
    await until(() => listening() !== undefined, "the gateway to listen");
    const url = String(listening()?.url);
    const adminUrl = String(listening()?.admin_url);
    await until(async () => (await fetch(`${adminUrl}/readyz`)).status === 200, "readyz");
    return { ...program, url, adminUrl };
  } catch (error) {
    await program.stop();
    throw error;
  }
}
