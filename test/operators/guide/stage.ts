import { execFile, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { cpSync, mkdirSync, mkdtempSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { selfSignedCertificate, startGenerator } from "../../../src/sandbox/generator/server.ts";
import { childEnv } from "../../support/child-env.ts";
import { send, until } from "../../support/gateway.ts";
import { startPostgres } from "../../support/postgres-server.ts";
import { startGatewayProcess } from "../../support/processes.ts";
import { givenKey, givenRedis, TEXT_TO_VIDEO } from "../../support/store-stage.ts";
import { ROOT } from "./blocks.ts";

export const ADMIN_TOKEN = "correct-horse-battery";
const STAND_INS =
  "docker kubectl systemctl journalctl redis-cli npm tollgate curl chown valkey-cli createuser createdb apt-get";
/** Tasks that end with their first poll. */
export const AT_ONCE = { durationMs: 0, startDelayMs: 0, failRatio: 0, uploadDelayMs: 0 };
/** The lines of a log that the guide's `jq` looks for. */
const LOG = [
  { level: "error", msg: "an error of the log", time: "2026-10-31T12:00:00Z" },
  {
    level: "info",
    request_id: "req_1",
    client_request_id: "order-1",
    outcome: "unmetered",
    price: 10,
    account_id: "a",
  },
  { level: "info", long_line: "4711-1", text: "part" },
]
  .map((line) => JSON.stringify(line))
  .join("\n");

export type GuideStage = Awaited<ReturnType<typeof givenGuideStage>>;

/** Gateway, Redis, upstream, PostgreSQL and the shop, and a folder with what the guide's commands name. */
export async function givenGuideStage() {
  const [redis, generator, postgres] = await Promise.all([
    givenRedis(),
    startGenerator({ behaviour: AT_ONCE }),
    startPostgres(),
  ]);
  const folder = mkdtempSync(join(tmpdir(), "tollgate-guide-"));
  const { cert, key } = selfSignedCertificate();
  const bin = fillFolder(folder, { cert, key });
  await redis.client.save();
  await makeSecrets(join(folder, "made-secrets"));
  const archiveUrl = postgres.url();
  const backends = {
    redisUrl: redis.url,
    upstreamUrl: generator.url,
    journal: join(folder, "journal"),
    env: {
      REDIS_URL: redis.url,
      UPSTREAM_URL: generator.url,
      UPSTREAM_API_KEY: "upstream-secret",
      ADMIN_TOKEN,
      ARCHIVE_URL: archiveUrl,
    },
  };
  const gateway = await startGatewayProcess(backends);
  const tls = { cert: join(folder, "tls/root.pem"), key: join(folder, "me.key") };
  const open = await startGatewayProcess({ ...backends, env: {}, config: { server: { tls } } });
  const env = { ...environment(folder, bin, gateway), ...backends.env };
  const tollgate = async (...words: string[]) => {
    const { stdout } = await promisify(execFile)(join(bin, "tollgate"), [...words, "--json"], { env });
    return JSON.parse(stdout);
  };
  await givenKey(redis.client);
  await tollgate("archive", "migrate");
  const isCopied = () => tollgate("archive", "verify").then(Boolean, () => false);
  await until(isCopied, "the archive to have something");
  const shop = await startShop(gateway.adminUrl, await shopToken(tollgate));
  return {
    folder,
    redis,
    gateway,
    open,
    generator,
    shop,
    env,
    archiveUrl,
    /** As make-secrets.sh makes them for several Redis. */
    secrets: join(folder, "made-secrets"),
    tollgate,
    /** A key of a fresh account with 1000 credits. */
    key: () => givenKey(redis.client),
    /** A task of that account; completed if it is to be refunded. */
    async task(secret: string, isCompleted: boolean): Promise<string> {
      const made = await send(gateway.url, "POST", TEXT_TO_VIDEO, {
        key: secret,
        body: { prompt: randomUUID() },
      });
      const id = made.body.data.task_id as string;
      const poll = () => send(gateway.url, "GET", `/api/v1/tasks/${id}`, { key: secret });
      if (isCompleted)
        await until(async () => (await poll()).body.data?.status === "completed", "the task to be completed");
      return id;
    },
    async stop(): Promise<void> {
      await shop.stop();
      await Promise.all([gateway.stop(), open.stop()]);
      await Promise.all([generator.stop(), redis.stop(), postgres.remove()]);
    },
  };
}

/** Of several Redis. */
async function makeSecrets(folder: string): Promise<void> {
  const address = "rediss+sentinel://10.0.0.1,10.0.0.2,10.0.0.3/tollgate";
  await promisify(execFile)("sh", [join(ROOT, "deploy/redis/make-secrets.sh"), folder, address]);
}

/** What an operator's shell has, but for where Redis, upstream and archive are. */
const environment = (
  folder: string,
  bin: string,
  gateway: Awaited<ReturnType<typeof startGatewayProcess>>,
) => ({
  ...childEnv(),
  PATH: `${bin}:${process.env.PATH}`,
  GUIDE_PATH: process.env.PATH ?? "",
  GUIDE_LOG: LOG,
  HOME: join(folder, "home"),
  TOLLGATE_CONFIG: gateway.configFile,
  JOURNAL: join(folder, "journal"),
  PORT: new URL(gateway.url).port,
  ADMIN_PORT: new URL(gateway.adminUrl).port,
});

/** @returns the folder of programs that come first on the PATH */
function fillFolder(folder: string, { cert, key }: { cert: string; key: string }): string {
  const bin = join(folder, "bin");
  for (const name of [
    "bin",
    "home/.zfunc",
    "home/.config/fish/completions",
    "tls",
    "etc/tollgate",
    "BACKUP",
    "journal",
  ])
    mkdirSync(join(folder, name), { recursive: true });
  for (const name of STAND_INS.split(" ")) {
    const script = `#!/bin/sh\nexec "${process.execPath}" "${join(import.meta.dirname, "stand-in.ts")}" ${name} "$@"\n`;
    writeFileSync(join(bin, name), script, { mode: 0o755 });
  }
  for (const name of ["deploy", "config", "package.json", "bench", "Dockerfile", "lua"])
    symlinkSync(join(ROOT, name), join(folder, name));
  for (const name of ["new.yaml", "my.yaml"]) cpSync(join(ROOT, "config/tollgate.yaml"), join(folder, name));
  cpSync(join(ROOT, "config/prices"), join(folder, "prices"), { recursive: true });
  const adapters = join(ROOT, "examples/adapters");
  cpSync(adapters, join(folder, "examples/adapters"), { recursive: true });
  cpSync(join(adapters, "replicate.ts"), join(folder, "generator.ts"));
  const files = {
    "tls/root.pem": cert,
    "me.pem": cert,
    "me.key": key,
    "body.json": '{"prompt": "rain"}',
    "gateway.log": `Started tollgate.service\n42\n${LOG}\n`,
    "gateway.env": "REDIS_URL=redis://127.0.0.1:6379\n",
  };
  for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content);
  return bin;
}

async function shopToken(tollgate: (...words: string[]) => Promise<{ token: string }>): Promise<string> {
  const scopes =
    "accounts:read,accounts:write,accounts:reinstate,keys:write,credits:write,tasks:read,tasks:write,usage:read";
  return (await tollgate("tokens", "create", "--label", "shop", "--scopes", scopes)).token;
}

async function startShop(tollgateUrl: string, token: string) {
  const child = spawn(process.execPath, ["shop.ts"], {
    cwd: join(ROOT, "examples/shop"),
    env: { ...childEnv(), TOLLGATE_URL: tollgateUrl, TOLLGATE_TOKEN: token, PORT: "0" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [line] = (await once(createInterface(child.stdout), "line")) as [string];
  return {
    url: /http:\S+/.exec(line)![0],
    async stop() {
      child.kill();
      await once(child, "exit");
    },
  };
}
