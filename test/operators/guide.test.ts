import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Webhook } from "standardwebhooks";
import { afterAll, beforeAll, expect, test } from "vitest";
import { send, until } from "../support/gateway.ts";
import { type Block, blocksOf, ROOT, shellBlocks } from "./guide/blocks.ts";
import { AT_ONCE, type GuideStage, givenGuideStage } from "./guide/stage.ts";

// Guarantee: every command of every page works as it is written. All of them run, in bash, against a gateway with a Redis, an
// upstream, an archive and a shop; stand-ins of programs that cannot run here check each name that they are given.

/** Special treatment of a block: the output it must have, or how it must be refused, or why it is only parsed. */
interface Plan {
  shows?: RegExp;
  refused?: RegExp;
  /** How a refused block ends, if not with 1. */
  code?: number;
  parsed?: string;
}

// Refusals of a healthy store on one server: the command was understood and has looked.
const NOT_EMPTY = /not empty|has (data|names|keys|accounts)/i;
const NOTHING_LOST = /there is nothing to accept/;
const NO_CLUSTER = /only partitions of a Redis Cluster are frozen/;

const PLANS: Record<string, Plan> = {
  "docs/operations/incidents.md: curl -s 127.0.0.1:9090/readyz; curl -s 127.0.0.1:9090/metrics | grep -E '^tollgate_(store|config|ledger)_'":
    { shows: /tollgate_store_up 1[\s\S]*"msg":"an error of the log"/ },
  "docs/operations/several-redis.md: curl -s 127.0.0.1:9090/metrics | grep -E '^tollgate_(primary|store)_(up|info|outbox|unconfirmed)'":
    { shows: /tollgate_store_outbox_entries 0[\s\S]*"msg":"an error of the log"/ },
  // Of the second, the create answer is lost.
  "docs/sandbox.md: KEY=$(cat .tollgate/demo-key)": { refused: /"code":200.*"code":502/, code: 22 },
  'docs/webhooks.md: case "$TIMESTAMP" in': { shows: /^valid$/m },
  "docs/logging.md: jq -nR '[inputs | fromjson? | objects | select(.price != null)]": {
    shows: /"credits": 10/,
  },
  "docs/logging.md: jq -cR 'fromjson? | objects | select(.request_id == $id or .client_request_id == $id)' --arg id order-1 gateway.log":
    { shows: /"request_id":"req_1"/ },
  "docs/logging.md: jq -rR 'fromjson? | objects | select(.long_line == \"4711-1\") | .text' gateway.log | tr -d '\\n'":
    {
      shows: /^part$/,
    },
  "docs/cli.md: tollgate archive restore": { refused: NOT_EMPTY },
  "docs/archive.md: ARCHIVE_URL=postgres://tollgate:...@db:5432/tollgate REDIS_URL=redis://new:6379 tollgate archive restore":
    { refused: NOT_EMPTY },
  "docs/cli.md: tollgate store accept --json > lost.json": { refused: NOTHING_LOST },
  "docs/operations/backup.md: tollgate store show": { refused: NOTHING_LOST },
  "docs/cli.md: tollgate partitions freeze 3,17": { refused: NO_CLUSTER },
  "docs/cli.md: tollgate partitions thaw 3,17": { refused: NO_CLUSTER },
  "docs/operations/redis-cluster.md: tollgate partitions freeze 60": { refused: NO_CLUSTER },
  'docs/operations/several-redis.md: NODES="10.0.0.1:6379 ... 10.0.0.6:6379" sh /etc/tollgate-redis/cluster.sh create':
    {
      parsed: "it needs six servers; several-redis.test.ts runs it",
    },
};

let stage: GuideStage;
beforeAll(async () => {
  stage = await givenGuideStage();
}, 120_000);
afterAll(() => stage?.stop(), 60_000);

const place = (url: string): string => new URL(url).host;

/** The block with what its placeholders stand for: a customer, keys and tasks of its own. */
async function filledIn({ page, text }: Block): Promise<string> {
  const { folder, gateway, open, shop, redis, generator } = stage;
  const key = await stage.key();
  const ids: Record<string, string> = {
    KEY_ID: key.keyId,
    key_4x7: key.keyId,
    sk_live_4f9a: /keys import/.test(text) ? `sk_${randomUUID()}` : key.key,
    DIR: redis.dir,
    "/opt/tollgate": ROOT,
    key_9yKq2m4vTz0a: key.keyId,
    "https://shop.example.com/webhooks": `${stage.receiver.url}/hook`,
    "http://127.0.0.1:3000/hook": `${stage.receiver.url}/hook`,
    "/usr/local/bin/": `${folder}/bin/installed-`,
    "/etc/tollgate": `${folder}/etc/tollgate`,
    "/root/redis-authority": `${folder}/redis-authority`,
    "redis://redis:6379": redis.url,
    "redis://new:6379": redis.url,
    "https://generator.example.com": generator.url,
    "…": "upstream-secret",
    "https://gateway.example.com:8080": open.url.replace("127.0.0.1", "localhost"),
    "gateway.example.com:8080": place(open.url).replace("127.0.0.1", "localhost"),
    "https://...": `${open.url.replace("127.0.0.1", "localhost")}/api/v1/credits -H "Authorization: Bearer ${key.key}"`,
    "127.0.0.1:9090": place(gateway.adminUrl),
    // Servers without a token are only on loopback without ADMIN_TOKEN.
    "localhost:9090": place(open.adminUrl),
    "127.0.0.1:8080": place(gateway.url),
    "http://127.0.0.1:4010": generator.url,
    "http://127.0.0.1:3000": shop.url,
    "postgres://tollgate_owner:...@db:5432/tollgate": stage.archiveUrl,
    "postgres://tollgate:...@db:5432/tollgate": stage.archiveUrl,
  };
  if (text.includes("task_81c")) ids.task_81c = await stage.task(key.key, /refund/.test(text));
  if (text.includes("tok_9yKq")) ids.tok_9yKq2m4vTz0a = (await givenToken()).token_id ?? "";
  if (text.includes("we_9yKq")) {
    const { id, eventId } = await stage.endpoint(key.accountId);
    Object.assign(ids, { we_9yKq2m4vTz0aRx0d: id, evt_req_81c_task_completed: eventId });
  }
  if (text.includes("credits reverse"))
    await stage.tollgate("credits", "grant", key.accountId, "10", "--reference", "order-9");
  if (text.includes("tgm_...")) ids["tgm_..."] = (await givenToken()).token ?? "";
  if (text.includes("cus_...")) Object.assign(ids, await givenShopCustomer());
  // The archive has an account about a second after Redis.
  if (/statement acme|--account acme --(from|by)/.test(text)) {
    const isCopied = () => stage.tollgate("usage", "--account", key.accountId).then(Boolean, () => false);
    await until(isCopied, "the archive to have the account");
  }
  // Its account: one that is there, unless the block makes it.
  const isMade = /accounts create|"account_id": "acme"|keys import/.test(text);
  const account = isMade ? `acme-${randomUUID().slice(0, 8)}` : key.accountId;
  ids["account acme"] = `account ${account}`;
  ids["we_..."] = `$(tollgate webhooks list ${account} --json | jq -r '.webhooks[0].id')`;
  return Object.entries(ids)
    .reduce((filled, [from, to]) => filled.replaceAll(from, to), text)
    .replaceAll(/(?<=[ "/])acme(?=[ "/]|$)/gm, account)
    .replaceAll(/--reference (\S+)/g, `--reference $1-${randomUUID().slice(0, 8)}`)
    .replaceAll("ann@example.com", `${randomUUID()}@example.com`)
    .replaceAll("order-1001", `order-${page.length}-${randomUUID().slice(0, 8)}`);
}

const givenToken = (): Promise<Record<string, string>> =>
  stage.tollgate("tokens", "create", "--label", "guide", "--scopes", "accounts:read");

async function givenShopCustomer(): Promise<Record<string, string>> {
  const email = `${randomUUID()}@example.com`;
  const { body } = await send(stage.shop.url, "POST", "/customers", { body: { email } });
  await send(stage.shop.url, "POST", `/customers/${body.customer_id}/orders/1/paid`, {
    body: { package: "basic" },
  });
  const taskId = await stage.task(body.api_key, true);
  const quoted = { '"task_id": "..."': `"task_id": "${taskId}"`, '"sk_..."': `"${body.api_key}"` };
  return { "cus_...": body.customer_id, ...quoted };
}

/** Values of the page's variables: an endpoint, a message that was sent to it, and one with `body.json`. */
async function givenMessage(accountId: string): Promise<Record<string, string>> {
  const { id, secret, eventId } = await stage.endpoint(accountId);
  const at = new Date();
  const signature = new Webhook(secret).sign(
    eventId,
    at,
    readFileSync(join(stage.folder, "body.json"), "utf8"),
  );
  const message = { ID: eventId, TIMESTAMP: String(Math.floor(at.getTime() / 1000)), SIGNATURE: signature };
  return { ...message, ACCOUNT: accountId, WEBHOOK: id, DELIVERY: eventId, WEBHOOK_SECRET: secret };
}

interface Ran {
  code: number;
  shown: string;
}

/** Runs a script, of which the first argument is the file `body.json`. */
function bash(script: string, env: Record<string, string>): Promise<Ran> {
  return new Promise((done) => {
    const options = { cwd: stage.folder, env, timeout: 110_000, maxBuffer: 64e6 };
    const words = ["-eo", "pipefail", "-c", script, "bash", "body.json"];
    const child = execFile("bash", words, options, (error, stdout, stderr) =>
      done({ code: error ? Number(error.code ?? -1) : 0, shown: stdout + stderr }),
    );
    child.stdin?.end();
  });
}

/** Makes everything that a block needs and that the block before it, or the page's text, has made. */
function prepare({ text, page }: Block, env: Record<string, string>): void {
  const { folder } = stage;
  const secrets = join(folder, "etc/tollgate-redis/secrets/servers");
  if (text.includes("keys import")) {
    writeFileSync(join(folder, "key.txt"), `sk_${randomUUID()}\n`);
    writeFileSync(join(folder, "keys.csv"), `sk_${randomUUID()},imported,standard\n`);
  }
  if (text.includes("redis-secrets/"))
    cpSync(stage.secrets, join(folder, "redis-secrets"), { recursive: true });
  // It makes the folder that blocks of earlier pages were given.
  if (text.includes("make-secrets.sh"))
    rmSync(join(folder, "etc/tollgate-redis"), { recursive: true, force: true });
  if (text.includes("cli.sh")) {
    cpSync(join(ROOT, "deploy/redis"), join(folder, "etc/tollgate-redis"), { recursive: true });
    mkdirSync(secrets, { recursive: true });
    writeFileSync(join(secrets, "admin.password"), "secret");
  }
  if (page === "examples/shop/README.md" && text.includes("npm start"))
    env.GUIDE_FOLDER = join(ROOT, "examples/shop");
}

test.each(shellBlocks())("$name", async (block) => {
  const plan = PLANS[block.name] ?? {};
  const key = await stage.key();
  const env: Record<string, string> = {
    ...stage.env,
    KEY: key.key,
    TOLLGATE_KEY: key.key,
    TOLLGATE_URL: stage.gateway.url,
  };
  const parsing = `bash -n <<'END_OF_BLOCK'\n${block.text}\nEND_OF_BLOCK\n`;
  expect(await bash(parsing, env)).toEqual({ code: 0, shown: "" });
  if (plan.parsed !== undefined) return;
  prepare(block, env);
  if (block.page === "docs/webhooks.md") Object.assign(env, await givenMessage(key.accountId));
  const { code, shown } = await bash(await filledIn(block), env);
  stage.generator.behave(AT_ONCE);
  if (plan.refused) {
    expect(code, shown).toBe(plan.code ?? 1);
    expect(shown).toMatch(plan.refused);
  } else {
    expect(code, shown).toBe(0);
    expect(shown).toMatch(plan.shows ?? /^/);
  }
});

test("what is said of a block is of one that is there", () => {
  const names = shellBlocks().map(({ name }) => name);
  expect(Object.keys(PLANS).filter((name) => !names.includes(name))).toEqual([]);
});

// Controls: the mistakes that were found, and some of their kind, do not pass.
test.each([
  "tollgate config prints",
  "tollgate keys list --acount acme",
  "curl -s 127.0.0.1:9090/metrics | grep '^tollgate_event_loop'",
  "journalctl -u tollgate -o cat | jq -c 'select(.level == \"error\")'",
  "systemctl restart tollgated",
  "docker compose exec gatway node src/cli.js doctor",
  "kubectl apply -k deploy/kubernetes/redis-sentinels -n video",
  "npm run servee",
  "npx node examples/webhooks/receivers.ts",
  "helm install tollgate deploy/helm --set image.repo=registry.example.com/tollgate",
  "redis-cli CLUSTER ADDSLOTRANGE 0 1",
  "redis-cli --cluster imports NEW_NODE:6379",
  "redis-cli CONFIG SET tls-clusters yes",
  "nosuchprogram",
])("control: `%s` is found", async (line) => {
  const [block] = blocksOf("docs/control.md", `\`\`\`sh\n${line}\n\`\`\`\n`);
  const { code } = await bash(await filledIn(block!), stage.env);
  expect(code).not.toBe(0);
});
