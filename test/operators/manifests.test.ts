import { execFile } from "node:child_process";
import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { checkedByTypes, KUBERNETES_TYPES } from "../support/deployment/manifest-types.ts";
import { isInstalled } from "../support/edge/proxies.ts";

const run = promisify(execFile);
const ROOT = resolve(import.meta.dirname, "../..");

/** Fetched for this test alone; nothing else in the project needs them. */
const VALIDATORS = ["dclint@3.1.0", "dockerfile-utils@0.16.3", KUBERNETES_TYPES];

const MANIFESTS = [
  ...["configmap", "gateway", "service", "disruption-budget", "network-policy", "secret.example"],
  "redis/redis",
  "redis-nodes/redis",
].map((name) => `deploy/kubernetes/${name}.yaml`);

/** Rules of taste that compose.yaml does not follow: we name and publish what we build. */
const COMPOSE_RULES = {
  "no-build-and-image": 0,
  "no-unbound-port-interfaces": 0,
  "service-image-require-explicit-tag": 0,
};

let dir: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "tollgate-manifests-"));
  await writeFile(join(dir, "package.json"), "{}");
  await run("npm", ["install", "--ignore-scripts", "--no-audit", "--no-fund", ...VALIDATORS], { cwd: dir });
}, 240_000);
afterAll(() => rm(dir, { recursive: true, force: true }));

/** Output of a program, and if it succeeded. */
async function outputOf(program: string, args: readonly string[]): Promise<{ ok: boolean; text: string }> {
  return run(program, args, { cwd: dir }).then(
    ({ stdout, stderr }) => ({ ok: true, text: stdout + stderr }),
    (error: { stdout: string; stderr: string }) => ({ ok: false, text: error.stdout + error.stderr }),
  );
}

const tool = (name: string): string => join(dir, "node_modules/.bin", name);

/** A copy of a file of the repository in the validators' folder, with one thing changed. */
async function copyOf(file: string, change?: readonly [from: string, to: string]): Promise<string> {
  const copy = join(dir, file.replaceAll("/", "-"));
  await cp(join(ROOT, file), copy);
  if (change) {
    const source = await readFile(copy, "utf8");
    expect(source).toContain(change[0]);
    await writeFile(copy, source.replace(...change));
  }
  return copy;
}

describe.each(["compose.yaml", "deploy/compose/sentinel.yaml", "deploy/compose/cluster.yaml"])(
  "%s",
  (file) => {
    const lint = async (change?: readonly [string, string]) => {
      await writeFile(join(dir, ".dclintrc.json"), JSON.stringify({ rules: COMPOSE_RULES }));
      return outputOf(tool("dclint"), ["--quiet", await copyOf(file, change)]);
    };

    test("is what the Compose Specification's schema allows", async () => {
      expect(await lint()).toEqual({ ok: true, text: expect.any(String) });
    });
    test("a setting that Compose does not know is found", async () => {
      const { ok, text } = await lint(["stop_grace_period", "stop_grace_perriod"]);
      expect(ok).toBe(false);
      expect(text).toMatch(/stop_grace_perriod|invalid-schema/);
    });
  },
);

describe("the Dockerfile", () => {
  const lint = async (change?: readonly [string, string]) =>
    outputOf(tool("dockerfile-utils"), ["lint", await copyOf("Dockerfile", change)]);

  test("is what a Dockerfile parser understands, without a warning", async () => {
    expect(await lint()).toEqual({ ok: true, text: "" });
  });
  test("an instruction that is none is found", async () => {
    expect((await lint(["COPY lua", "COPPY lua"])).text).toMatch(/Unknown instruction/);
  });
});

const KUBECTL = "/usr/bin/kubectl";
const SYSTEMD_ANALYZE = "/usr/bin/systemd-analyze";

describe.skipIf(!isInstalled(SYSTEMD_ANALYZE, "systemd"))("the systemd units", () => {
  /** systemd only warns of what it ignores, so what counts is that it says nothing. */
  const verify = async (name: string, change?: readonly [string, string]) => {
    const unit = join(dir, name.replace("@", "@redis"));
    const source = await readFile(await copyOf(`deploy/systemd/${name}`, change), "utf8");
    // It looks whether the program is there, which on this machine may be elsewhere.
    await writeFile(unit, source.replace("/usr/bin/node", process.execPath));
    return outputOf(SYSTEMD_ANALYZE, ["verify", "--man=no", unit]);
  };

  test.each(["tollgate.service", "tollgate-redis@.service"])(
    "%s is understood without a warning",
    async (name) => {
      expect(await verify(name)).toEqual({ ok: true, text: "" });
    },
  );
  test("a setting that systemd does not know is found", async () => {
    expect((await verify("tollgate.service", ["LimitNOFILE", "LimitNOFILES"])).text).toContain(
      "Unknown key 'LimitNOFILES'",
    );
  });
});

describe("Kubernetes manifests", () => {
  test("have the fields of their kinds, and no other", async () => {
    const files = await Promise.all(MANIFESTS.map((file) => copyOf(file)));
    expect(await checkedByTypes(dir, files)).toEqual({ ok: true, text: "" });
  });
  test.each([
    ["terminationGracePeriodSeconds", "terminationGracePeriodSecond"],
    ["replicas: 3", 'replicas: "3"'],
  ])("%s as %s is found", async (...change) => {
    const { ok, text } = await checkedByTypes(dir, [await copyOf("deploy/kubernetes/gateway.yaml", change)]);
    expect(ok).toBe(false);
    expect(text).toMatch(/TS2353|TS2322/);
  });
});

describe.skipIf(!isInstalled(KUBECTL, "kubectl"))("several Redis on Kubernetes", () => {
  test.each(["redis-sentinel", "redis-cluster"])("%s, patched, has the fields of its kinds", async (name) => {
    const { stdout } = await run(KUBECTL, ["kustomize", join(ROOT, "deploy/kubernetes", name)]);
    const file = join(dir, `${name}.yaml`);
    await writeFile(file, stdout);
    expect(await checkedByTypes(dir, [file])).toEqual({ ok: true, text: "" });
  });
});
