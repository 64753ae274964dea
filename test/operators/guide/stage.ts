import { execFile, spawn } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { cpSync, mkdirSync, mkdtempSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { selfSignedCertificate } from "../../../src/sandbox/generator/server.ts";
import { childEnv } from "../../support/child-env.ts";
import { send, until } from "../../support/gateway.ts";
import { startGenerator } from "../../support/generator.ts";
import { startPostgres } from "../../support/postgres-server.ts";
import { startGatewayProcess } from "../../support/processes.ts";
import { givenKey, givenRedis, TEXT_TO_VIDEO } from "../../support/store-stage.ts";
import { ROOT } from "./blocks.ts";

export const ADMIN_TOKEN = "correct-horse-battery";
const STAND_INS =
  "docker kubectl helm kubeconform systemctl journalctl redis-cli npm npx tollgate curl chown valkey-cli createuser createdb apt-get";
/** Tasks that end with their first poll. */
export const AT_ONCE = { durationMs: 0, startDelayMs: 0, failRatio: 0, uploadDelayMs: 0 };
/** The demo account of the sandbox. */
const DEMO = "demo";
/** Settings that the pages tell readers to make, for their commands. */
const CONFIG = {
  accounts: { indexed_metadata: ["plan"] },
  webhooks: { public_url: "http://127.0.0.1:8080", allow_networks: ["127.0.0.0/8"] },
};
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
  const servers = await startServers();
  const { redis, generator, postgres, receiver } = servers;
  const folder = mkdtempSync(join(tmpdir(), "tollgate-guide-"));
  const { cert, key } = selfSignedCertificate();
  const bin = fillFolder(folder, { cert, key });
  await redis.client.save();
  await makeSecrets(join(folder, "made-secrets"));
  const { gateway, open, secrets } = await startGateways(servers, folder);
  const env = { ...environment(folder, bin, gateway), ...secrets };
  const tollgate: Tollgate = async (...words) => {
    const { stdout } = await promisify(execFile)(join(bin, "tollgate"), [...words, "--json"], { env });
    return JSON.parse(stdout);
  };
  const demo = await givenKey(redis.client, { accountId: DEMO });
  fillSandboxFolder(folder, demo.key, secrets);
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
    receiver,
    env,
    archiveUrl: secrets.ARCHIVE_URL,
    /** As make-secrets.sh makes them for several Redis. */
    secrets: join(folder, "made-secrets"),
    tollgate,
    /** A key of a fresh account with 1000 credits. */
    key: () => givenKey(redis.client),
    endpoint: (accountId: string) => givenEndpoint(tollgate, accountId, `${receiver.url}/hook`),
    task: (secret: string, isCompleted: boolean) => givenTask(gateway.url, secret, isCompleted),
    async stop(): Promise<void> {
      await shop.stop();
      await Promise.all([gateway.stop(), open.stop()]);
      await Promise.all([generator.stop(), redis.stop(), postgres.remove(), receiver.stop()]);
    },
  };
}

type Tollgate = (...words: string[]) => Promise<Record<string, string>>;

async function startServers() {
  const [redis, generator, postgres, receiver] = await Promise.all([
    givenRedis(),
    startGenerator({ behaviour: AT_ONCE }),
    startPostgres(),
    startReceiver(),
  ]);
  return { redis, generator, postgres, receiver };
}

/** `open` has neither ADMIN_TOKEN nor archive, and TLS. */
async function startGateways(
  { redis, generator, postgres }: Awaited<ReturnType<typeof startServers>>,
  folder: string,
) {
  const secrets = {
    REDIS_URL: redis.url,
    UPSTREAM_URL: generator.url,
    UPSTREAM_API_KEY: "upstream-secret",
    ADMIN_TOKEN,
    ARCHIVE_URL: postgres.url(),
    WEBHOOK_SECRET_KEY: randomBytes(32).toString("base64"),
  };
  const { WEBHOOK_SECRET_KEY } = secrets;
  const backends = { redisUrl: redis.url, upstreamUrl: generator.url, journal: join(folder, "journal") };
  const gateway = await startGatewayProcess({ ...backends, config: CONFIG, env: secrets });
  const tls = { cert: join(folder, "tls/root.pem"), key: join(folder, "me.key") };
  const open = await startGatewayProcess({
    ...backends,
    config: { ...CONFIG, server: { tls } },
    env: { WEBHOOK_SECRET_KEY },
  });
  return { gateway, open, secrets };
}

/** An endpoint of an account, its secret, and a message that was sent to it. */
async function givenEndpoint(tollgate: Tollgate, accountId: string, url: string) {
  const { id = "", secret = "" } = await tollgate("webhooks", "create", accountId, url);
  const { id: eventId = "" } = await tollgate("webhooks", "test", accountId, id);
  return { id, secret, eventId };
}

/** A task of the account of this key; completed if it is to be refunded. */
async function givenTask(url: string, key: string, isCompleted: boolean): Promise<string> {
  const made = await send(url, "POST", TEXT_TO_VIDEO, { key, body: { prompt: randomUUID() } });
  const id = made.body.data.task_id as string;
  const poll = () => send(url, "GET", `/api/v1/tasks/${id}`, { key });
  if (isCompleted)
    await until(async () => (await poll()).body.data?.status === "completed", "the task to be completed");
  return id;
}

/** Takes every webhook. */
async function startReceiver() {
  const server = createServer((req, res) => {
    req.resume();
    res.writeHead(204).end();
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}`, stop: () => void server.close() };
}

/** Fills the folder as `npm start` leaves it for the sandbox's commands. */
function fillSandboxFolder(folder: string, key: string, env: Record<string, string>): void {
  const place = join(folder, ".tollgate");
  mkdirSync(place);
  writeFileSync(join(place, "demo-key"), key);
  writeFileSync(join(place, "start.env"), `export REDIS_URL='${env.REDIS_URL}'\n`);
  writeFileSync(join(place, "webhooks.env"), `export WEBHOOK_SECRET_KEY='${env.WEBHOOK_SECRET_KEY}'\n`);
}

/** Of several Redis. */
async function makeSecrets(folder: string): Promise<void> {
  const address = "rediss+sentinel://10.0.0.1,10.0.0.2,10.0.0.3/tollgate";
  await promisify(execFile)("sh", [join(ROOT, "deploy/redis/make-secrets.sh"), folder, address]);
}

/** An operator's shell, but for where Redis, upstream and archive are. */
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
  // The variables of docs/management.md and docs/webhooks.md.
  api: `${gateway.adminUrl}/manage/v1`,
  auth: `Authorization: Bearer ${ADMIN_TOKEN}`,
  MANAGE: `${gateway.adminUrl}/manage/v1`,
  TOKEN: ADMIN_TOKEN,
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
    "values.yaml": "replicas: 2\n",
  };
  for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content);
  return bin;
}

async function shopToken(tollgate: Tollgate): Promise<string> {
  const scopes =
    "accounts:read,accounts:write,accounts:reinstate,keys:read,keys:write,credits:write,tasks:read,tasks:write,usage:read";
  const { token = "" } = await tollgate("tokens", "create", "--label", "shop", "--scopes", scopes);
  return token;
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
