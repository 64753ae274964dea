import { execFileSync, spawnSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const ROOT = resolve(import.meta.dirname, "../../..");

describe("npm run release", () => {
  let copy: string;
  const git = (...args: string[]): string =>
    execFileSync("git", ["-c", "user.name=t", "-c", "user.email=t@example.com", ...args], {
      cwd: copy,
      encoding: "utf8",
    }).trim();
  const release = (into: string) =>
    spawnSync(process.execPath, ["tools/release.ts", join(copy, "..", into)], {
      cwd: copy,
      encoding: "utf8",
    });
  const { version } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));

  beforeAll(() => {
    copy = join(mkdtempSync(join(tmpdir(), "tollgate-releasing-")), "tollgate");
    const files = execFileSync("git", ["ls-files", "-z", "--cached", "--others", "--exclude-standard"], {
      cwd: ROOT,
      encoding: "utf8",
    });
    const wanted = files.split("\0").filter((file) => file !== "" && !/^(test|bench)\//.test(file));
    for (const file of wanted) cpSync(join(ROOT, file), join(copy, file));
    symlinkSync(join(ROOT, "node_modules"), join(copy, "node_modules"));
    cpSync(join(ROOT, ".gitignore"), join(copy, ".gitignore"));
    writeFileSync(join(copy, ".gitignore"), "node_modules\n", { flag: "a" });
    const changes = `# Changelog\n\n## ${version} - 2026-12-01\n\n- First.\n`;
    writeFileSync(join(copy, "CHANGELOG.md"), changes);
    git("init", "-q");
    git("add", "-A");
    git("commit", "-qm", "one");
  });
  afterAll(() => rmSync(join(copy, ".."), { recursive: true, force: true }));

  test("makes the same archive twice, of a gateway that names version and commit, with no secrets", () => {
    const first = release("first");
    // Guarantee: what deploy/redis/make-secrets.sh has made where the examples say so is published with no release.
    const secrets = join(copy, "deploy/redis/secrets");
    mkdirSync(join(secrets, "authority"), { recursive: true });
    writeFileSync(join(secrets, "authority/ca.key"), "a key that signs certificates");
    const second = release("second");
    expect([first.stderr, second.stderr]).toEqual(["", ""]);
    const archive = join(copy, "../second", `tollgate-${version}.tar.gz`);
    const names = execFileSync("tar", ["-tzf", archive], { encoding: "utf8" }).split("\n");
    expect(names).toContain(`tollgate-${version}/deploy/redis/make-secrets.sh`);
    expect(names.filter((each) => each.includes("/secrets"))).toEqual([]);
    const digests = ["first", "second"].map((folder) =>
      readFileSync(join(copy, "..", folder, `tollgate-${version}.tar.gz.sha256`), "utf8"),
    );
    expect(digests[0]).toBe(digests[1]);
    execFileSync("sha256sum", ["-c", `tollgate-${version}.tar.gz.sha256`], { cwd: join(copy, "../first") });
    execFileSync("tar", ["-xzf", `tollgate-${version}.tar.gz`], { cwd: join(copy, "../first") });
    const unpacked = join(copy, "../first", `tollgate-${version}`);
    // Guarantee: the archive's own service and scripts start what it has.
    const inFiles = ["package.json", "deploy/systemd/tollgate", "deploy/systemd/tollgate.service"].map(
      (file) =>
        readFileSync(join(unpacked, file), "utf8")
          .match(/src\/[\w-]+\.[jt]s/g)!
          .filter((one) => !/sandbox/.test(one)),
    );
    const programs = [...new Set(inFiles.flat())];
    expect(programs).toContain("src/main.js");
    expect(programs.filter((one) => !existsSync(join(unpacked, one)))).toEqual([]);
    const links = ["README.md", "CHANGELOG.md"].flatMap((page) =>
      Array.from(
        readFileSync(join(ROOT, page), "utf8").matchAll(/\]\((?!http)([^)#]+)/g),
        ([, link]) => link!,
      ),
    );
    expect(links).toContain("docs/api.md");
    expect(links.filter((link) => !existsSync(join(unpacked, link)))).toEqual([]);
    const cli = join(unpacked, "src/cli.js");
    const commit = git("rev-parse", "HEAD");
    expect(execFileSync(process.execPath, [cli, "--version"], { encoding: "utf8" })).toBe(
      `${version} (${commit.slice(0, 12)})\n`,
    );
    expect(first.stdout).toContain(`--build-arg REVISION=${commit}`);
  });

  test("sources name the commit in a worktree of their own, too, and once Git has packed its branches", () => {
    git("worktree", "add", "-q", "-b", "beside", "../beside");
    git("-C", "../beside", "commit", "-qm", "two", "--allow-empty");
    const revisions = () =>
      [".", "../beside"].map((checkout) =>
        execFileSync(
          process.execPath,
          ["-p", 'import("./src/telemetry/version.ts").then(({ REVISION }) => console.log(REVISION)), ""'],
          { cwd: join(copy, checkout), encoding: "utf8" },
        ).trim(),
      );
    const commits = ["HEAD", "beside"].map((name) => git("rev-parse", name).slice(0, 12));
    expect(revisions()).toEqual(commits);
    git("pack-refs", "--all");
    expect(revisions()).toEqual(commits);
  });

  test("refuses a changed tree, versions that differ, and a version without changes", () => {
    const broken: [file: string, from: string, to: string][] = [
      ["Dockerfile", `ARG VERSION=${version}`, "ARG VERSION=9.9.9"],
      ["CHANGELOG.md", `## ${version}`, "## Unreleased"],
    ];
    for (const [file, from, to] of broken) {
      const source = readFileSync(join(copy, file), "utf8");
      expect(source).toContain(from);
      writeFileSync(join(copy, file), source.replace(from, to));
    }
    const { status, stderr } = release("third");
    expect(status).toBe(1);
    expect(stderr).toMatch(/not committed:\n\s*M CHANGELOG\.md\n\s*M Dockerfile/);
    expect(stderr).toContain(`Dockerfile says 9.9.9, package.json ${version}`);
    expect(stderr).toContain(`CHANGELOG.md has no section "## ${version}"`);
  });
});
