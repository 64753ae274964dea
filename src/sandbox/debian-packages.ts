import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

const APT_TIMEOUT_MS = 120_000;

export interface Wanted<Program> {
  candidates: readonly (readonly string[])[];
  dependencies: boolean;
  backports?: boolean;
  find(root: string): Promise<Program | undefined>;
}

/** Unpacked under `baseDir`, not installed, without root. Concurrent callers unpack separately; the first rename wins. */
export async function debianProgram<Program>(baseDir: string, wanted: Wanted<Program>): Promise<Program> {
  const home = join(baseDir, await releaseName());
  const kept = await working(home, wanted);
  if (kept) return kept;
  await mkdir(baseDir, { recursive: true });
  const work = await mkdtemp(join(baseDir, "unpacking-"));
  try {
    const root = await fetchInto(work, wanted);
    // Unless another caller has just repaired it.
    if (!(await working(home, wanted))) await rename(home, join(work, "broken")).catch(() => {});
    await rename(root, home).catch(() => {});
    const program = await working(home, wanted);
    if (!program) throw new Error(`the packages are unpacked in ${home}, but what they hold does not run`);
    return program;
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

async function releaseName(): Promise<string> {
  const [id, like] = [await releaseField("ID"), await releaseField("ID_LIKE")];
  if (!/\b(debian|ubuntu)\b/.test(`${id} ${like}`)) throw new Error("this is neither Debian nor Ubuntu");
  const release = (await releaseField("VERSION_CODENAME")) || (await releaseField("VERSION_ID")) || "rolling";
  return `${id}-${release}-${process.arch}`;
}

async function releaseField(name: string): Promise<string> {
  const text = await readFile("/etc/os-release", "utf8").catch(() => "");
  return new RegExp(`^${name}="?([^"\n]*)"?$`, "m").exec(text)?.[1] ?? "";
}

async function fetchInto<Program>(work: string, wanted: Wanted<Program>): Promise<string> {
  const apt = await privateApt(work, wanted.backports ?? false);
  const reasons: string[] = [];
  for (const names of wanted.candidates) {
    const root = join(work, `of-${names.join("-")}`);
    try {
      const more = wanted.dependencies ? await missingPackages(apt, names) : [];
      await apt("download", [...names, ...more]);
      for (const file of await readdir(work)) {
        if (file.endsWith(".deb")) await run("dpkg", ["-x", join(work, file), root]);
      }
      if (!(await wanted.find(root))) throw new Error(`${names.join(" and ")} hold no such program`);
      return root;
    } catch (error) {
      reasons.push(lastLine(error));
    }
  }
  throw new Error([...new Set(reasons)].join("; "));
}

type Apt = (command: string, args: readonly string[]) => Promise<string>;

/** A private apt needs no root. */
async function privateApt(work: string, backports: boolean): Promise<Apt> {
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
  // A third-party source may be down.
  await apt("update", []).catch(() => {});
  if (!backports) return apt;
  const list = join(work, "sources.list");
  await writeFile(list, await withBackports(apt));
  settings.push(`Dir::Etc::SourceList=${list}`);
  await apt("update", []).catch(() => {});
  return apt;
}

async function withBackports(apt: Apt): Promise<string> {
  const codename = await releaseField("VERSION_CODENAME");
  const format = ["--format", "$(REPO_URI)", "Created-By: Packages", `Codename: ${codename}`];
  const [archive] = (await apt("indextargets", [...format, "Component: main"])).split("\n");
  const own = await readFile("/etc/apt/sources.list", "utf8").catch(() => "");
  return archive ? `${own}\ndeb ${archive} ${codename}-backports main\n` : own;
}

/** An empty answer is no failure. */
async function missingPackages(apt: Apt, names: readonly string[]): Promise<string[]> {
  const plan = await apt("install", ["--simulate", "--no-install-recommends", ...names]).catch(() => "");
  const all = [...plan.matchAll(/^Inst (\S+)/gm)].map((line) => line[1]!);
  // A second libc would not fit the machine's loader.
  return all.filter((name) => !names.includes(name) && !/^(libc6|libc-bin)\b/.test(name));
}

const working = <Program>(root: string, wanted: Wanted<Program>): Promise<Program | undefined> =>
  wanted.find(root).catch(() => undefined);

function lastLine(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.trim().split("\n").at(-1) ?? text;
}
