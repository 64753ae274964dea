import { execFile } from "node:child_process";
import { access, constants, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";
import { startChild } from "../../src/sandbox/child.ts";
import { debianProgram, type Wanted } from "../../src/sandbox/debian-packages.ts";
import { freePort, TOLLGATE_DIR } from "../../src/sandbox/redis.ts";
// Not through gateway.ts: a global setup cannot load the whole gateway, whose console resolves a module by name.
import { until } from "./until.ts";

const run = promisify(execFile);

/** Where the two programs of the package are. */
export interface PrometheusBinaries {
  prometheus: string;
  promtool: string;
}

const WANTED: Wanted<PrometheusBinaries> = {
  candidates: [["prometheus"]],
  // Fonts and scripts of its web page, which nobody looks at here.
  dependencies: false,
  find: (root) => findIn(join(root, "usr/bin")),
};
const HOME = join(TOLLGATE_DIR, "prometheus");

/**
 * Prometheus and promtool from the PATH, else from the distribution's packages: a download of some 20 MB, once.
 * @throws when there is neither
 */
export async function findPrometheus(): Promise<PrometheusBinaries> {
  for (const dir of (process.env.PATH ?? "").split(delimiter).filter(Boolean)) {
    const found = await findIn(dir);
    if (found) return found;
  }
  return debianProgram(HOME, WANTED).catch((error: Error) => {
    throw new Error(`no prometheus and promtool on the PATH, and none from packages: ${error.message}`);
  });
}

async function findIn(dir: string): Promise<PrometheusBinaries | undefined> {
  const binaries = { prometheus: join(dir, "prometheus"), promtool: join(dir, "promtool") };
  try {
    for (const path of Object.values(binaries)) await access(path, constants.X_OK);
  } catch {
    return undefined;
  }
  await run(binaries.promtool, ["--version"], { timeout: 10_000 });
  return binaries;
}

/**
 * Runs promtool.
 * @param input what it reads from its standard input
 * @returns all that it printed, and its exit code
 */
export function promtool(
  { promtool: path }: PrometheusBinaries,
  args: readonly string[],
  input = "",
): Promise<{ code: number; output: string }> {
  return new Promise((resolve) => {
    const child = execFile(path, args, { timeout: 180_000 }, (error, stdout, stderr) => {
      const code = typeof error?.code === "number" ? error.code : error ? 1 : 0;
      resolve({ code, output: stdout + stderr });
    });
    child.stdin?.on("error", () => undefined);
    child.stdin?.end(input);
  });
}

/** One series that a query has found. */
export interface Found {
  metric: Record<string, string>;
  value: [atSeconds: number, value: string];
}

export type RunningPrometheus = Awaited<ReturnType<typeof startPrometheus>>;

/**
 * A Prometheus of the test's own on the loopback.
 * @param config the text of its prometheus.yaml
 * @param files beside it, by name
 */
export async function startPrometheus(
  { prometheus }: PrometheusBinaries,
  config: string,
  files: Readonly<Record<string, string>>,
) {
  const dir = await mkdtemp(join(tmpdir(), "tollgate-prometheus-"));
  for (const [name, text] of Object.entries({ ...files, "prometheus.yaml": config })) {
    await writeFile(join(dir, name), text);
  }
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const args = ["--config.file", join(dir, "prometheus.yaml"), "--storage.tsdb.path", join(dir, "data")];
  const child = await startChild(prometheus, [...args, `--web.listen-address=127.0.0.1:${port}`], {
    cwd: dir,
    stdio: "ignore",
  });
  const stop = async (): Promise<void> => {
    await child.stop(5000);
    await rm(dir, { recursive: true, force: true });
  };
  const get = async (path: string, query: Record<string, string> = {}) => {
    const answer = await fetch(`${url}/api/v1/${path}?${new URLSearchParams(query)}`);
    // biome-ignore lint/suspicious/noExplicitAny: answers differ by path.
    const body = (await answer.json()) as any;
    if (body.status !== "success") throw new Error(`${query.query ?? path}: ${body.error}`);
    return body.data;
  };
  try {
    await until(
      () =>
        fetch(`${url}/-/ready`).then(
          ({ status }) => status === 200,
          () => false,
        ),
      "Prometheus to be ready",
    );
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    url,
    get,
    query: async (query: string): Promise<Found[]> => (await get("query", { query })).result,
    stop,
  };
}
