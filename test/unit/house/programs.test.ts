import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { expect, onTestFinished, test } from "vitest";

const ROOT = resolve(import.meta.dirname, "../../..");

function givenFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "tollgate-programs-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return folder;
}

// Guarantee: a setting that is given as an argument is not ignored in silence.
test.each(["src/main.ts", "src/sandbox/start.ts", "src/sandbox/main.ts"])("%s refuses arguments", (file) => {
  const { status, stdout, stderr } = spawnSync(process.execPath, [join(ROOT, file), "--port", "9000"], {
    encoding: "utf8",
  });
  expect({ status, stdout }).toEqual({ status: 1, stdout: "" });
  expect(stderr).toMatch(/takes no arguments, and was given: --port 9000\nSettings are in the config file/);
});

// Guarantee: on a Node that is too old, what is printed says so, before anything that it cannot run.
test("an old Node is told which one is wanted, by every script of package.json that starts it", () => {
  const { scripts } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
  const started = Object.keys(scripts).filter((name) => scripts[name].includes("--disable-sigusr1"));
  expect(started).toEqual(["start", "serve", "sandbox", "tollgate"]);
  for (const name of started) expect(scripts[`pre${name}`], name).toBe("node src/node-version.js");
  const check = join(ROOT, "src/node-version.js");
  expect(spawnSync(process.execPath, [check], { encoding: "utf8" })).toMatchObject({ status: 0, stderr: "" });
  for (const old of ["20.20.2", "24.11.9"]) {
    const code = `Object.defineProperty(process.versions, "node", { value: "${old}" }); await import("${check}");`;
    const { status, stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", code], {
      encoding: "utf8",
    });
    expect(status).toBe(1);
    expect(stderr).toMatch(
      new RegExp(`needs Node 24\\.12 or newer, and .* is ${old.replaceAll(".", "\\.")}`),
    );
  }
});

// Guarantee: the command line beside tollgate.service uses the Redis, the archive and the journal of the service.
test("the command of deploy/systemd has the environment of the service, and not that of the shell", () => {
  const root = givenFolder();
  for (const folder of ["etc/tollgate", "var/lib/tollgate", "opt/tollgate"])
    mkdirSync(join(root, folder), { recursive: true });
  mkdirSync(join(root, "opt/tollgate/src"));
  symlinkSync(join(ROOT, "package.json"), join(root, "opt/tollgate/package.json"));
  symlinkSync(join(ROOT, "src/node-version.js"), join(root, "opt/tollgate/src/node-version.js"));
  const print =
    "console.log(JSON.stringify({ env: process.env, words: process.argv.slice(2), cwd: process.cwd() }))";
  writeFileSync(join(root, "opt/tollgate/src/cli.ts"), print);
  const address = "rediss+sentinel://tollgate:p#w@a,b/tollgate?sentinel_user=u&sentinel_password=$(x)";
  const file = [
    "# a comment",
    "; another",
    `REDIS_URL=${address}`,
    'UPSTREAM_API_KEY="a b=c"',
    "ADMIN_TOKEN='x y'",
  ];
  writeFileSync(join(root, "etc/tollgate/tollgate.env"), file.join("\n"));
  const elsewhere = { REDIS_URL: "redis://staging", JOURNAL: "/elsewhere", TOLLGATE_CONFIG: "mine.yaml" };
  const stdout = execFileSync(
    "sh",
    [join(ROOT, "deploy/systemd/tollgate"), "keys", "list", "--tier", "a b"],
    {
      env: { PATH: process.env.PATH, NODE: process.execPath, TOLLGATE_ROOT: root, ...elsewhere },
      encoding: "utf8",
      cwd: root,
    },
  );
  const { env, words, cwd } = JSON.parse(stdout);
  expect(env).toMatchObject({
    REDIS_URL: address,
    UPSTREAM_API_KEY: "a b=c",
    ADMIN_TOKEN: "x y",
    TOLLGATE_CONFIG: join(root, "etc/tollgate/tollgate.yaml"),
    JOURNAL: join(root, "var/lib/tollgate/journal"),
    ADMIN_HOSTS: hostname(),
    NODE_ENV: "production",
  });
  expect({ words, cwd }).toEqual({ words: ["keys", "list", "--tier", "a b"], cwd: root });
});

// Guarantee: a gateway starts without the fetch client that Node.js carries, which takes 40 ms and is not used.
test("no module of a gateway loads the fetch client of Node.js", () => {
  const loads = (code: string): string =>
    spawnSync(
      process.execPath,
      [
        "--input-type=module",
        "-e",
        `${code}; console.log(process.moduleLoadList.some((name) => name.includes("deps/undici")))`,
      ],
      { encoding: "utf8" },
    ).stdout;
  expect(loads(`await import(${JSON.stringify(join(ROOT, "src/process/start-gateway.ts"))})`)).toBe(
    "false\n",
  );
  expect(loads('await import("node:http")')).toBe("true\n");
});
