import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, readFile, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import type { RedisBinary } from "./redis-server.ts";
import { binaryVersion } from "./redis-server.ts";

const run = promisify(execFile);

/** The second of each holds the program itself in Debian's packaging, the first a link to it. */
const CANDIDATES = [
  ["redis-server", "redis-tools"],
  ["valkey-server", "valkey-tools"],
] as const;
const APT_TIMEOUT_MS = 120_000;

/**
 * The distribution's Redis, unpacked under `baseDir` and not installed. Kept there and used again; callers at the same
 * time do not disturb each other, for each unpacks on its own and the first to rename wins. Needs no root.
 * @throws when this is not Debian or Ubuntu, or the packages cannot be had
 */
export async function debianRedis(baseDir: string): Promise<RedisBinary> {
  const home = join(baseDir, await releaseName());
  const kept = await workingBinary(home);
  if (kept) return kept;
  await mkdir(baseDir, { recursive: true });
  const work = await mkdtemp(join(baseDir, "unpacking-"));
  try {
    const root = await fetchInto(work);
    // What lies there did not work a moment ago; unless another caller has just put it right.
    if (!(await workingBinary(home))) await rename(home, join(work, "broken")).catch(() => {});
    await rename(root, home).catch(() => {});
    const binary = await workingBinary(home);
    if (!binary) throw new Error(`the packages are unpacked in ${home}, but the server does not run`);
    return binary;
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/** Such as "debian-bookworm-x64": packages of one release do not fit another. */
async function releaseName(): Promise<string> {
  const text = await readFile("/etc/os-release", "utf8").catch(() => "");
  const field = (name: string) => new RegExp(`^${name}="?([^"\n]*)"?$`, "m").exec(text)?.[1] ?? "";
  if (!/\b(debian|ubuntu)\b/.test(`${field("ID")} ${field("ID_LIKE")}`)) {
    throw new Error("this is neither Debian nor Ubuntu");
  }
  const release = field("VERSION_CODENAME") || field("VERSION_ID") || "rolling";
  return `${field("ID")}-${release}-${process.arch}`;
}

/** Downloads and unpacks the first candidate that apt knows; returns the directory to be kept. */
async function fetchInto(work: string): Promise<string> {
  const apt = await privateApt(work);
  const reasons: string[] = [];
  for (const names of CANDIDATES) {
    const root = join(work, names[0]);
    try {
      await apt("download", [...names, ...(await missingPackages(apt, names))]);
      for (const file of await readdir(work)) {
        if (file.endsWith(".deb")) await run("dpkg", ["-x", join(work, file), root]);
      }
      const binary = await findBinary(root);
      if (!binary) throw new Error(`${names.join(" and ")} hold no server`);
      await binaryVersion(binary);
      return root;
    } catch (error) {
      reasons.push(lastLine(error));
    }
  }
  throw new Error([...new Set(reasons)].join("; "));
}

type Apt = (command: string, args: readonly string[]) => Promise<string>;

/** apt with lists and cache of its own, so that it needs no root and leaves the machine's alone. */
async function privateApt(work: string): Promise<Apt> {
  const lists = join(work, "lists");
  const cache = join(work, "cache");
  await mkdir(join(lists, "partial"), { recursive: true });
  await mkdir(join(cache, "archives", "partial"), { recursive: true });
  const settings = [`Dir::State::Lists=${lists}`, `Dir::Cache=${cache}`, "APT::Sandbox::User=root"];
  const apt: Apt = async (command, args) => {
    const options = settings.flatMap((setting) => ["-o", setting]);
    const { stdout } = await run("apt-get", ["-q", ...options, command, ...args], {
      cwd: work,
      timeout: APT_TIMEOUT_MS,
      maxBuffer: 16 << 20,
      env: { ...process.env, LC_ALL: "C", DEBIAN_FRONTEND: "noninteractive" },
    });
    return stdout;
  };
  // A third-party source that does not answer is none of our business; if ours does not, the download says so.
  await apt("update", []).catch(() => {});
  return apt;
}

/** What apt would install along with these. An empty answer is no failure: the server says what it lacks. */
async function missingPackages(apt: Apt, names: readonly string[]): Promise<string[]> {
  const plan = await apt("install", ["--simulate", "--no-install-recommends", ...names]).catch(() => "");
  const all = [...plan.matchAll(/^Inst (\S+)/gm)].map((line) => line[1]!);
  // A second libc would not fit the machine's loader.
  return all.filter((name) => !names.includes(name) && !/^(libc6|libc-bin)\b/.test(name));
}

async function workingBinary(root: string): Promise<RedisBinary | undefined> {
  const binary = await findBinary(root);
  if (!binary) return undefined;
  return binaryVersion(binary).then(
    () => binary,
    () => undefined,
  );
}

async function findBinary(root: string): Promise<RedisBinary | undefined> {
  const files = await readdir(root, { recursive: true }).catch(() => []);
  const path = files.find((file) => /(^|\/)bin\/(redis|valkey)-server$/.test(file));
  if (path === undefined) return undefined;
  const libraries = files
    .filter((file) => /\.so(\.\d+)*$/.test(file))
    .map((file) => join(root, dirname(file)));
  const inherited = process.env.LD_LIBRARY_PATH;
  const search = [...new Set(libraries), ...(inherited ? [inherited] : [])].join(":");
  return { path: join(root, path), env: { ...process.env, LD_LIBRARY_PATH: search } };
}

function lastLine(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.trim().split("\n").at(-1) ?? text;
}
