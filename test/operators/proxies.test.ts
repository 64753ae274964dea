import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { Redis } from "ioredis";
import { describe, expect, inject, test } from "vitest";
import { startChild } from "../../src/sandbox/child.ts";
import { startGenerator } from "../../src/sandbox/generator/server.ts";
import { freePort } from "../../src/sandbox/redis.ts";
import { issueKey } from "../../src/store/accounts.ts";
import { send } from "../support/gateway.ts";
import { startGatewayProcess } from "../support/processes.ts";
import { until } from "../support/until.ts";

const ROOT = resolve(import.meta.dirname, "../..");
const TEXT_TO_VIDEO = "/api/v1/gen2/text-to-video";
const run = promisify(execFile);

interface Started {
  stop(patienceMs: number): Promise<void>;
}

/** Starts a proxy by its example, after its own check of the file. */
type Start = (port: number, gateway: string, admin: string, folder: string) => Promise<Started>;

const haproxy: Start = async (port, gateway, admin) => {
  const file = join(ROOT, "deploy/haproxy/haproxy.cfg");
  const env = {
    TOLLGATE_BIND: `127.0.0.1:${port}`,
    TOLLGATE_1: gateway,
    TOLLGATE_1_ADMIN: admin,
    TOLLGATE_2: gateway,
    TOLLGATE_2_ADMIN: admin,
  };
  await run("/usr/sbin/haproxy", ["-c", "-f", file], { env });
  return startChild("/usr/sbin/haproxy", ["-db", "-f", file], { env, stdio: "ignore" });
};

const nginx: Start = async (port, gateway, _admin, folder) => {
  const example = await readFile(join(ROOT, "deploy/nginx/nginx.conf"), "utf8");
  const file = join(folder, "nginx.conf");
  const here = example
    .replace("listen 80;", `listen 127.0.0.1:${port};`)
    .replace(/10\.0\.0\.1[12]:8080/g, gateway);
  await writeFile(
    file,
    `daemon off;\npid ${folder}/pid;\nerror_log ${folder}/errors;\n${here.replace("http {", `http {\naccess_log off;\nclient_body_temp_path ${folder}/bodies;\nproxy_temp_path ${folder}/proxied;\n`)}`,
  );
  await run("/usr/sbin/nginx", ["-t", "-p", folder, "-c", file]);
  return startChild("/usr/sbin/nginx", ["-p", folder, "-c", file], { stdio: "ignore" });
};

describe.each([
  ["haproxy", "/usr/sbin/haproxy", haproxy],
  ["nginx", "/usr/sbin/nginx", nginx],
] as const)("the example of %s", (name, program, start) => {
  const found = existsSync(program);
  if (!found) console.log(`Skipped: no ${program}. Install it: apt-get install ${name}.`);

  // Guarantee: a gateway that dies under a generation makes no SDK behind the proxy buy a second video.
  test.skipIf(!found)(
    "after a killed gateway the client gets our envelope, and nothing is sent twice",
    async () => {
      const folder = await mkdtemp(join(tmpdir(), "tollgate-proxy-"));
      const generator = await startGenerator();
      const redis = new Redis(inject("redisUrl"));
      const { key } = await issueKey(redis, { credits: 1000 });
      const gateway = await startGatewayProcess({ redisUrl: inject("redisUrl"), upstreamUrl: generator.url });
      const port = await freePort();
      const proxy = await start(port, new URL(gateway.url).host, new URL(gateway.adminUrl).port, folder);
      const url = `http://127.0.0.1:${port}`;
      const credits = () => send(url, "GET", "/api/v1/credits", { key });
      const generate = (prompt: string) => send(url, "POST", TEXT_TO_VIDEO, { key, body: { prompt } });
      const made = () => generator.requests.filter(({ method }) => method === "POST").length;
      try {
        await until(
          () =>
            credits().then(
              ({ status }) => status === 200,
              () => false,
            ),
          "the proxy to serve",
        );
        expect((await generate("hello")).status).toBe(200);
        const before = made();
        const underWay = generate("[sandbox: delay=30s]");
        await until(() => made() > before, "the generation to be under way");
        gateway.signal("SIGKILL");
        const cut = await underWay;
        expect(cut).toMatchObject({ status: 502, body: { code: 502, msg: cut.body.error } });
        expect(cut.headers.get("x-should-retry")).toBe("false");
        expect(cut.headers.get("content-type")).toMatch(/^application\/json/);
        const nobody = await generate("to nobody");
        expect([502, 503]).toContain(nobody.status);
        expect(nobody.body).toMatchObject({ code: nobody.status, msg: nobody.body.error });
        expect(made()).toBe(before + 1);
      } finally {
        await proxy.stop(5000);
        await gateway.stop();
        redis.disconnect();
        await generator.stop();
        await rm(folder, { recursive: true, force: true });
      }
    },
    120_000,
  );
});
