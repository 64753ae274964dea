import { execFile } from "node:child_process";
import { chmod, cp, mkdir, mkdtemp, readFile, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, dirname, join, relative, resolve } from "node:path";
import { promisify } from "node:util";
import { environmentOf, execForm, isInContext, lastOf, parseDockerfile, type Stage } from "./dockerfile.ts";

const run = promisify(execFile);
const ROOT = resolve(import.meta.dirname, "../../..");

/** A stage of the Dockerfile, made in a folder of this machine instead of an image. */
export interface BuiltStage {
  /** Folder that would be the image's root. */
  root: string;
  /** Its working directory. */
  workdir: string;
  env: Record<string, string>;
  command: string[];
  healthcheck: string[];
}

/**
 * Does what `docker build` would, as far as our Dockerfile goes: the same context, the same copies, the same commands,
 * stage by stage, each in a folder of its own. The base image is this machine with the Node that runs the tests.
 */
export async function buildStages(): Promise<Record<string, BuiltStage>> {
  const dockerfile = await readFile(join(ROOT, "Dockerfile"), "utf8");
  const ignore = await readFile(join(ROOT, ".dockerignore"), "utf8");
  const base = await mkdtemp(join(tmpdir(), "tollgate-image-"));
  // Made private; the image's user must get in.
  await chmod(base, 0o755);
  const built: Record<string, BuiltStage> = {};
  for (const stage of parseDockerfile(dockerfile)) {
    built[stage.name] = await buildStage(stage, join(base, stage.name), built, ignore);
  }
  return built;
}

async function buildStage(
  stage: Stage,
  root: string,
  built: Record<string, BuiltStage>,
  ignore: string,
): Promise<BuiltStage> {
  let workdir = root;
  await givenBase(root);
  for (const { keyword, flags, text } of stage.steps) {
    if (keyword === "WORKDIR") {
      workdir = join(root, text);
      await mkdir(workdir, { recursive: true });
    } else if (keyword === "COPY") {
      const words = text.split(/ +/);
      const target = resolve(workdir, words.pop() ?? "");
      const from = flags.from === undefined ? ROOT : built[flags.from]!.root;
      for (const source of words) await copy(from, source, target, flags.from === undefined ? ignore : "");
    } else if (keyword === "RUN") {
      await run("sh", ["-c", text], { cwd: workdir, env: await buildEnvironment(root), timeout: 600_000 });
    }
  }
  const exec = (wanted: string) => execForm(lastOf(stage, wanted) ?? "[]");
  return { root, workdir, env: environmentOf(stage), command: exec("CMD"), healthcheck: exec("HEALTHCHECK") };
}

/** Stand-ins for the package managers of node's image; node itself is this machine's. */
async function givenBase(root: string): Promise<void> {
  for (const path of ["lib/node_modules/npm/package.json", "bin/npm", "bin/npx", "bin/corepack"]) {
    const file = join(root, "usr/local", path);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, "");
  }
}

/** COPY of one source: a folder's content, or a file into a folder or under a new name. */
async function copy(from: string, source: string, target: string, ignore: string): Promise<void> {
  const path = join(from, source);
  const isFile = (await stat(path)).isFile();
  const intoFolder = isFile && (await stat(target).catch(() => undefined))?.isDirectory();
  const filter = (file: string): boolean => isInContext(relative(from, file), ignore);
  await cp(path, intoFolder ? join(target, source) : target, { recursive: true, filter });
}

/** The environment of RUN. Only root may give a folder away; anybody else runs the image as himself. */
async function buildEnvironment(root: string): Promise<NodeJS.ProcessEnv> {
  const tools = `${root}-tools`;
  await mkdir(tools, { recursive: true });
  if (process.getuid?.() !== 0) await writeFile(join(tools, "chown"), "#!/bin/sh\n", { mode: 0o755 });
  return { ...process.env, PATH: [tools, dirname(process.execPath), process.env.PATH].join(delimiter) };
}

/** Who the image's processes are: its user, where this process may become that. */
export function identity(): { uid?: number; gid?: number } {
  return process.getuid?.() === 0 ? { uid: 1000, gid: 1000 } : {};
}
