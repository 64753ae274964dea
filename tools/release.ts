import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parse } from "yaml";

// npm run release [FOLDER]: makes tollgate-VERSION.tar.gz and its SHA-256 in FOLDER (`release`) from the commit that is checked out, and prints the
// commands for the tag and the image. The archive has the bundle, which needs Node and nothing else, with pages and examples of deployments.
// Made twice of one commit it is the same, byte by byte.

const ROOT = resolve(import.meta.dirname, "..");
const into = resolve(process.argv[2] ?? join(ROOT, "release"));
const ALONGSIDE = [
  "README.md",
  "CHANGELOG.md",
  "CONTRIBUTING.md",
  "SECURITY.md",
  "docs",
  "deploy",
  "examples",
];

/** They name programs, which the archive has as bundles. */
const NAMES_PROGRAMS = [
  "package.json",
  "deploy/systemd/tollgate",
  "deploy/systemd/tollgate.service",
  "docs/operations/install.md",
];

const git = (...args: string[]): string => execFileSync("git", args, { cwd: ROOT, encoding: "utf8" }).trim();
const text = (file: string): string => readFileSync(join(ROOT, file), "utf8");

/** Obstacles to a release, in words. */
function obstacles(version: string): string[] {
  const chart = parse(text("deploy/helm/Chart.yaml"));
  const versions: [file: string, found: unknown][] = [
    ["deploy/helm/Chart.yaml", chart.version],
    ["deploy/helm/Chart.yaml (appVersion)", chart.appVersion],
    [
      "deploy/kubernetes/kustomization.yaml",
      parse(text("deploy/kubernetes/kustomization.yaml")).images[0].newTag,
    ],
    ["Dockerfile", /^ARG VERSION=(.*)$/m.exec(text("Dockerfile"))?.[1]],
    ["package-lock.json", JSON.parse(text("package-lock.json")).version],
  ];
  const changed = git("status", "--porcelain");
  return [
    ...(changed === "" ? [] : [`the tree has changes that are not committed:\n${changed}`]),
    ...versions
      .filter(([, found]) => found !== version)
      .map(([file, found]) => `${file} says ${found}, package.json ${version}`),
    ...(new RegExp(`^## ${version.replaceAll(".", "\\.")}( |$)`, "m").test(text("CHANGELOG.md"))
      ? []
      : [`CHANGELOG.md has no section "## ${version}"`]),
  ];
}

function makeArchive(version: string, commit: string): string {
  const work = mkdtempSync(join(tmpdir(), "tollgate-release-"));
  const name = `tollgate-${version}`;
  try {
    const env = { ...process.env, REVISION: commit };
    execFileSync(process.execPath, [join(ROOT, "tools/bundle.ts"), join(work, name)], { env });
    // From the commit: beside what it has, `deploy` may have the secrets of somebody's Redis, which Git ignores.
    const alongside = join(work, "alongside.tar");
    git("archive", `--output=${alongside}`, commit, ...ALONGSIDE);
    execFileSync("tar", ["-xf", alongside, "-C", join(work, name)]);
    for (const file of NAMES_PROGRAMS) {
      const path = join(work, name, file);
      writeFileSync(path, readFileSync(path, "utf8").replaceAll(/src\/(main|cli)\.ts/g, "src/$1.js"));
    }
    const sameEachTime = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX"];
    const tar = join(work, `${name}.tar`);
    execFileSync(
      "tar",
      [...sameEachTime, `--mtime=@${git("show", "-s", "--format=%ct")}`, "-cf", tar, name],
      {
        cwd: work,
      },
    );
    execFileSync("gzip", ["-n", "-9", tar]);
    mkdirSync(into, { recursive: true });
    const archive = join(into, `${name}.tar.gz`);
    cpSync(`${tar}.gz`, archive);
    const digest = createHash("sha256").update(readFileSync(archive)).digest("hex");
    writeFileSync(`${archive}.sha256`, `${digest}  ${name}.tar.gz\n`);
    return archive;
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

const { version } = JSON.parse(text("package.json"));
const found = obstacles(version);
if (found.length > 0) {
  process.stderr.write(`no release of ${version}:\n${found.map((one) => `- ${one}\n`).join("")}`);
  process.exit(1);
}
const commit = git("rev-parse", "HEAD");
process.stdout.write(`${makeArchive(version, commit)}

git tag -a v${version} -m "Tollgate ${version}" ${commit}
docker build --build-arg VERSION=${version} --build-arg REVISION=${commit} -t tollgate:${version} .
`);
