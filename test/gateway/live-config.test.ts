import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { LiveConfig } from "../../src/config/live.ts";
import { createToken } from "../../src/operations/access/tokens.ts";
import { readAccount } from "../../src/operations/accounts/accounts.ts";
import { issueKey } from "../../src/operations/keys/issue-key.ts";
import { cliActor } from "../../src/records/actor.ts";
import { detailsOf, LEDGER_START, readLedger } from "../../src/records/ledger-entries.ts";
import { requestName } from "../../src/records/names.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { childEnv } from "../support/child-env.ts";
import { expectStatus, limitsOf, type Reply, send, until } from "../support/gateway.ts";
import { type Generator, startGenerator } from "../support/generator.ts";
import { type Sections, startGatewayProcess } from "../support/processes.ts";
import { runCommand } from "../support/run-command.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { readRequest } from "../support/stored-requests.ts";

const TEXT_TO_VIDEO = "/api/v1/gen2/text-to-video";

let generator: Generator;
/** Of its own, since a sweeper looks after everything in it. */
let redis: TestRedis;
let gateway: Awaited<ReturnType<typeof startGatewayProcess>>;
let key: string;
/** When the gateway had not begun yet, by `performance.now()`. */
let beforeStartMs: number;

/** Room for anything, so that a refusal can only come from the change. */
const sections = (rateLimit: number, more: Sections = {}): Sections => ({
  tiers: { standard: { rate_limit: rateLimit, max_concurrent: 10_000, daily_limit: 1_000_000 } },
  tasks: { sweep_interval: "1m" },
  ...more,
});

beforeAll(async () => {
  generator = await startGenerator();
  redis = await givenRedis();
  beforeStartMs = performance.now();
  gateway = await startGatewayProcess({
    redisUrl: redis.url,
    upstreamUrl: generator.url,
    config: sections(50_000, { upstream: { url: "http://hidden.example" } }),
  });
  ({ key } = await issueKey(oneNode(redis.client), { credits: 1_000_000 }, cliActor()));
});
afterAll(async () => {
  await gateway?.stop();
  await generator?.stop();
  await redis?.stop();
});

const generate = (): Promise<Reply> =>
  send(gateway.url, "POST", TEXT_TO_VIDEO, { key, body: { prompt: "A paper boat" } });

/** Settings that need a restart, as the gateway was started with them. */
const startedWith = ({ configFile }: { configFile: string } = gateway) => ({
  journal: join(dirname(configFile), "journal"),
  allow_no_persistence: true,
});

/** Replaces the config file as editors do. */
function edit(content: Sections | string, { configFile } = gateway): void {
  const store = startedWith({ configFile });
  const text = typeof content === "string" ? content : JSON.stringify({ store, ...content });
  writeFileSync(`${configFile}.new`, text);
  renameSync(`${configFile}.new`, configFile);
}

/** `tollgate config diff` as an operator runs it, without the gateway's environment. */
const diff = (...args: string[]) => runCommand(["config", "diff", ...args], childEnv());

const shown = async ({ adminUrl } = gateway): Promise<ReturnType<LiveConfig["describe"]>> =>
  JSON.parse(await (await fetch(`${adminUrl}/config`)).text());
const metric = async (name: string): Promise<string | undefined> => {
  const page = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
  return page.split("\n").find((line) => line.startsWith(`${name} `));
};

test("a gateway that starts warns of each setting of its file that a variable replaces", async () => {
  const warned = () => gateway.logs().filter(({ variable }) => variable !== undefined);
  await until(() => warned().length > 0, "the warning");
  expect(warned()).toMatchObject([{ level: "warn", setting: "upstream.url", variable: "UPSTREAM_URL" }]);
});

test("prices, timeouts, the sweeper's pace, trusted proxies and more change with SIGHUP at the latest", async () => {
  edit(
    sections(50_000, {
      server: { trust_proxy: ["127.0.0.1"], unknown_keys_per_minute: 1, keep_alive_timeout: "33s" },
      tasks: { sweep_interval: "50ms", poll_interval: "100ms" },
      prices: resolve("config/prices/overview.yaml") as never,
      source_video_host: "https://elsewhere.example.com" as never,
      log: { level: "debug" },
    }),
  );
  gateway.signal("SIGHUP");
  await until(async () => (await shown()).settings.log.level === "debug", "the new configuration");
  expect(await (await fetch(`${gateway.adminUrl}/log-level`)).json()).toEqual({ level: "debug" });
  const credits = async (): Promise<number> =>
    (await send(gateway.url, "GET", "/api/v1/credits", { key })).body.data.balance;
  const before = await credits();
  const { status, headers } = await generate();
  expect(status).toBe(200);
  expect(headers.get("keep-alive")).toBe("timeout=33");
  expect(await credits()).toBe(before - 100);
  // The sweep that was planned for a minute after the start need not be waited for.
  const sweeps = 'tollgate_store_call_duration_seconds_count{script="lease"}';
  await until(async () => (await metric(sweeps)) !== undefined, "a sweep");
  expect(performance.now() - beforeStartMs, "before the planned one").toBeLessThan(60_000);
  const video = await send(gateway.url, "POST", "/api/v1/gen2/watermark-remove", {
    key,
    body: { videoUrl: "https://videos.example.com/a.mp4" },
  });
  expect(video.body.msg).toContain("https://elsewhere.example.com/");
  // Two clients behind the proxy, each with one attempt: the third request is the first one's second.
  const attempt = async (client: string): Promise<number> => {
    const headers = { "x-forwarded-for": client };
    return (await send(gateway.url, "GET", "/api/v1/credits", { key: "sk_unknown", headers })).body.code;
  };
  expect([await attempt("192.0.2.1"), await attempt("192.0.2.2"), await attempt("192.0.2.1")]).toEqual([
    401, 401, 2005,
  ]);
});

// Guarantee: an operator may change anything under load; each request is served by one configuration or the next.
test("a config edit under load takes effect, and no request fails", async () => {
  const replies: Reply[] = [];
  let going = true;
  const loops = Array.from({ length: 8 }, async () => {
    // With a pause: a fast machine would else use up all slots that a key may have, for tasks that nobody polls.
    while (going) {
      replies.push(await generate());
      await delay(20);
    }
  });
  const limit = () => limitsOf(replies.at(-1)!).limit;
  const tookMs: number[] = [];
  try {
    await until(() => replies.length > 0, "the load");
    // With other timeouts the connections to the generator are made anew as well.
    for (const [at, rateLimit] of [60_000, 70_000, 80_000].entries()) {
      const editedMs = performance.now();
      edit(sections(rateLimit, { upstream: { total_timeout: `${61 + at}s` } }));
      await until(() => limit() === rateLimit, `the limit ${rateLimit}`);
      tookMs.push(performance.now() - editedMs);
    }
    const before = replies.length;
    await until(() => replies.length > before + 50, "more load");
  } finally {
    going = false;
    await Promise.all(loops);
  }
  expect(new Set(replies.map(({ status }) => status))).toEqual(new Set([200]));
  // The quickest of three: a machine that has much else to do says nothing of the gateway.
  expect(Math.min(...tookMs)).toBeLessThan(2000);
});

// Guarantee: a request costs what it cost when it came, and keeps the limits that it came under.
test("a request under way keeps the configuration that it began with", async () => {
  edit(sections(50_000));
  await until(async () => (await shown()).settings.tiers.standard.rate_limit === 50_000, "the file");
  const customer = await issueKey(oneNode(redis.client), { credits: 1000 }, cliActor());
  const ask = (prompt: string): Promise<Reply> =>
    send(gateway.url, "POST", TEXT_TO_VIDEO, { key: customer.key, body: { prompt } });
  let over = false;
  const underWay = ask("[sandbox: delay=6s]").finally(() => {
    over = true;
  });
  await until(
    async () => (await readAccount(oneNode(redis.client), customer.accountId)).held === 10,
    "its hold",
  );
  edit(sections(60_000, { prices: resolve("config/prices/overview.yaml") as never }));
  gateway.signal("SIGHUP");
  await until(async () => (await shown()).settings.tiers.standard.rate_limit === 60_000, "the new one");
  expect(over).toBe(false);
  expect(limitsOf(await ask("the next one")).limit).toBe(60_000);
  const first = await underWay;
  expect({ status: first.status, limit: limitsOf(first).limit }).toEqual({ status: 200, limit: 50_000 });
  const account = await readAccount(oneNode(redis.client), customer.accountId);
  expect(account).toMatchObject({ balance: 1000 - 10 - 100, held: 0 });
});

// Guarantee: the millisecond of its admission decides what a request costs, on whichever gateway, whatever is reloaded meanwhile.
test("a price list that begins under load, on two gateways that reload, is in force from its millisecond on", async () => {
  const other = await startGatewayProcess({ redisUrl: redis.url, upstreamUrl: generator.url });
  const files = ["reference.yaml", "overview.yaml"].map((name) => resolve("config/prices", name));
  const both = [gateway, other];
  /** Changes the limit of both gateways; the limit shows that they have it. */
  async function reload(rateLimit: number, beginMs: number): Promise<void> {
    const prices = [{ file: files[0] }, { from: new Date(beginMs).toISOString(), file: files[1] }];
    for (const one of both) {
      edit(sections(rateLimit, { prices: prices as never }), one);
      one.signal("SIGHUP");
    }
    for (const one of both)
      await until(
        async () => (await shown(one)).settings.tiers.standard.rate_limit === rateLimit,
        "the lists",
      );
  }
  const limits = { rate_limit: 100_000, max_concurrent: 100_000, daily_limit: 100_000 };
  /** The lists by which requests were charged around the beginning of the second. */
  async function chargedAround(leadMs: number): Promise<Set<string>> {
    const beginMs = Date.now() + leadMs;
    await reload(49_000 - leadMs, beginMs);
    const customer = await issueKey(oneNode(redis.client), { credits: 1_000_000, limits }, cliActor());
    await until(() => Date.now() > beginMs - 300, "the last moments of the old prices");
    const reloaded = reload(48_000 - leadMs, beginMs);
    while (Date.now() < beginMs + 100) {
      const body = { prompt: "A paper boat" };
      const replies = both.map(({ url }) => send(url, "POST", TEXT_TO_VIDEO, { key: customer.key, body }));
      for (const reply of await Promise.all(replies)) expectStatus(reply, 200);
    }
    await reloaded;
    const { partition } = await readAccount(oneNode(redis.client), customer.accountId);
    const entries = await readLedger(redis.client, partition, LEDGER_START);
    const seen = new Set<string>();
    for (const entry of entries.filter((one) => one.accountId === customer.accountId && one.endpoint)) {
      const record = await readRequest(redis.client, requestName(partition, entry.requestId));
      const isNew = Number(record.admitted_at) >= beginMs;
      const [price, list] = isNew ? [100, "overview.yaml"] : [10, "reference.yaml"];
      expect([-entry.amount, detailsOf(entry).price_list, record.price]).toEqual([price, list, `${price}`]);
      seen.add(list);
    }
    return seen;
  }
  try {
    let seen = new Set<string>();
    // On a busy machine the old prices may be over before the first request.
    for (let leadMs = 1000; seen.size < 2 && leadMs <= 8000; leadMs *= 2) seen = await chargedAround(leadMs);
    expect([...seen].sort()).toEqual(["overview.yaml", "reference.yaml"]);
  } finally {
    await other.stop();
    edit(sections(50_000));
    gateway.signal("SIGHUP");
  }
});

test("a bad file changes nothing, and ports wait for a restart", async () => {
  edit(sections(50_000));
  await until(async () => (await shown()).settings.tiers.standard.rate_limit === 50_000, "the file");
  const { hash } = await shown();
  edit("servre: { port: 1 }\n");
  await until(
    async () => (await metric("tollgate_config_last_reload_successful"))?.endsWith(" 0") === true,
    "the refusal",
  );
  const problem = "servre: is unknown; did you mean server?";
  await until(() => gateway.logs().some(({ msg }) => String(msg).includes(problem)), "the reason in the log");
  expect((await shown()).hash).toBe(hash);
  expectStatus(await generate(), 200);

  edit(sections(40_000, { store: { command_timeout: "7s" } }));
  await until(async () => (await shown()).settings.tiers.standard.rate_limit === 40_000, "the mended file");
  const { settings, awaiting_restart, last_reload } = await shown();
  expect(last_reload.successful).toBe(true);
  expect(settings.store.command_timeout).not.toBe("7s");
  expect(awaiting_restart).toContainEqual({ setting: "store.command_timeout", file: "7s" });
  const warning = 'store.command_timeout: \\"500ms\\" to \\"7s\\"';
  const warned = () => JSON.stringify(gateway.logs().findLast(({ level }) => level === "warn"));
  await until(() => warned().includes(warning), "the warning in the log");
  expect((await metric("tollgate_config_last_reload_successful"))?.endsWith(" 1")).toBe(true);
});

test("config diff says what a file would change in the running gateway, before it does", async () => {
  const file = `${gateway.configFile}.planned`;
  const plan = sections(30_000, {
    server: { port: 8081, drain_delay: "5s" },
    store: { ...startedWith(), partitions: 8 },
    tasks: { sweep_interval: "1m", refund_failed: false },
    prices: resolve("config/prices/overview.yaml") as never,
  });
  writeFileSync(file, JSON.stringify(plan));
  const { tiers } = (await shown()).settings;
  const { code, stdout, stderr } = await diff(file, "--admin", gateway.adminUrl, "--json");
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  const answer = JSON.parse(stdout);
  expect(answer.from_environment).toMatchObject({ "server.port": "PORT", "upstream.url": "UPSTREAM_URL" });
  const found = answer.differences as { setting: string; needs_restart: boolean }[];
  expect(found.filter(({ setting }) => !setting.startsWith("gen2"))).toEqual([
    { setting: "server.drain_delay", from: "1s", to: "5s", needs_restart: false },
    { setting: "store.partitions", from: 64, to: 8, needs_restart: true },
    {
      setting: "tiers.standard.rate_limit",
      from: tiers.standard.rate_limit,
      to: 30_000,
      needs_restart: false,
    },
    { setting: "tasks.refund_failed", from: true, to: false, needs_restart: false },
  ]);
  expect(found).toContainEqual({ setting: "gen2/text-to-video", from: 10, to: 100, needs_restart: false });
  expect((await shown()).settings.tiers).toEqual(tiers);

  const slip = `${gateway.configFile}.prices`;
  const prices = readFileSync("config/prices/reference.yaml", "utf8");
  writeFileSync(slip, prices.replace("text-to-video: 10", "text-to-video: 1000"));
  writeFileSync(file, JSON.stringify({ ...plan, prices: slip }));
  const slipped = await diff(file, "--admin", gateway.adminUrl, "--json");
  expect(slipped.code, "it would be refused").toBe(1);
  expect(JSON.parse(slipped.stdout).differences).toContainEqual({
    setting: "gen2/text-to-video",
    from: 10,
    to: 1000,
    needs_restart: false,
    needs_confirmation: true,
  });
  const inWords = await diff(file, "--admin", gateway.adminUrl);
  expect(inWords.stdout).toMatch(
    /confirm_price_changes: if you mean these prices, set this to \{ "gen2\/text-to-video": 1000 \}/,
  );

  const defaults = await diff("--defaults");
  const nobody = await diff("--admin", "http://127.0.0.1:1", "--json");
  expect(defaults.stdout).toContain("No difference.");
  expect({ code: nobody.code, stdout: nobody.stdout }).toEqual({ code: 1, stdout: "" });
  expect(nobody.stderr).toMatch(/no gateway answers at .* --admin URL, or compare with --defaults/);
});

test("a limit is tried out in shadow mode: counted and logged, but nobody is refused until it is enforced", async () => {
  const tier = (shadow: string[]): Sections => ({
    tiers: { standard: { rate_limit: 1, max_concurrent: 10_000, daily_limit: 1_000_000, shadow } },
  });
  edit(tier(["rate_limit"]));
  await until(async () => (await shown()).settings.tiers.standard.rate_limit === 1, "shadow mode");
  ({ key } = await issueKey(oneNode(redis.client), { credits: 1000 }, cliActor()));
  const replies = [await generate(), await generate(), await generate()];
  expect(replies.map(({ status }) => status)).toEqual([200, 200, 200]);
  expect(replies.map(limitsOf)).toMatchObject([
    { limit: 1, remaining: 0 },
    { limit: 1, remaining: 0 },
    { limit: 1, remaining: 0 },
  ]);
  expect(await metric('tollgate_shadow_refusals_total{tier="standard",limit="rate_limit"}')).toMatch(/ 2$/);
  const ids = replies.map(({ headers }) => headers.get("x-request-id"));
  const lines = () => gateway.logs().filter((line) => ids.includes(String(line.request_id)));
  await until(() => lines().length === 3, "the log");
  expect(lines().map(({ shadow }) => shadow)).toEqual([undefined, ["rate_limit"], ["rate_limit"]]);

  edit(tier([]));
  await until(async () => (await generate()).status === 429, "the limit to be enforced");
});

/** The config file as the management API describes it. */
async function fileShown() {
  const nodes = oneNode(redis.client);
  const { token } = await createToken(nodes, { label: "test", scopes: ["accounts:read"] }, cliActor("test"));
  const headers = { authorization: `Bearer ${token}` };
  return (await send(gateway.adminUrl, "GET", "/manage/v1/configuration", { headers })).body.file;
}

// Guarantee: whoever reads why a file was refused knows which setting of which file to mend.
test("the management API says of a refused file what the log says: file, line, setting and problem", async ({
  onTestFinished,
}) => {
  onTestFinished(async () => {
    edit(sections(50_000));
    await until(async () => (await shown()).last_reload.successful, "the mended file");
  });
  const refused = async (content: Sections | string): Promise<string> => {
    const earlier = (await fileShown()).problem;
    edit(content);
    await until(async () => ![null, earlier].includes((await fileShown()).problem), "the refusal");
    return (await fileShown()).problem;
  };
  const file = gateway.configFile;
  expect(await refused("log:\n  levle: debug\n")).toContain(`${file}:2: log.levle: is unknown`);
  expect(await refused("log:\n  level: [\n")).toMatch(new RegExp(`^${RegExp.escape(file)}:\\d+: .*column`));
  const prices = `${file}.prices`;
  const reference = readFileSync("config/prices/reference.yaml", "utf8");
  writeFileSync(prices, reference.replace("text-to-video: 10", "text-to-video: 1000"));
  expect(await refused(sections(50_000, { prices: prices as never }))).toContain(
    `${prices}: gen2/text-to-video: changes more than tenfold, from 10 to 1000 credits`,
  );
});

// Guarantee: an operator sees that an edited file is not in force yet, and what it waits for.
test("with reload: signal the management API says which changes wait for SIGHUP, and not that they are wrong", async ({
  onTestFinished,
}) => {
  onTestFinished(async () => {
    edit(sections(50_000));
    gateway.signal("SIGHUP");
    await until(async () => (await shown()).settings.reload === "auto", "reload: auto");
  });
  edit(sections(50_000, { reload: "signal" as never }));
  await until(async () => (await shown()).settings.reload === "signal", "reload: signal");
  expect(await fileShown()).toMatchObject({ awaiting_signal: false, problem: null });
  edit(sections(60_000));
  await until(async () => (await shown()).awaiting_signal, "the changed file");
  const limit = {
    path: "tiers.standard.rate_limit",
    in_force: 50_000,
    in_file: 60_000,
    needs_restart: false,
  };
  const reload = { path: "reload", in_force: "signal", in_file: "auto", needs_restart: false };
  expect(await fileShown()).toMatchObject({ differs: [limit, reload], awaiting_signal: true, problem: null });
  gateway.signal("SIGHUP");
  await until(async () => (await shown()).settings.reload === "auto", "reload: auto");
  expect(await fileShown()).toMatchObject({ differs: [], awaiting_signal: false, problem: null });
});

// Guarantee: `enterprise:` mistyped as `enterprize:` does not give paying customers the limits of others.
test("a tier in use is neither dropped nor renamed at run time; as deprecated it keeps its limits", async () => {
  const limits = { rate_limit: 7, max_concurrent: 10, daily_limit: 1000 };
  const withTiers = (named: object): Sections => {
    const { tiers } = sections(50_000) as { tiers: object };
    return sections(50_000, { tiers: { ...tiers, ...named } as never });
  };
  const inForce = async () => Object.keys((await shown()).settings.tiers).sort();
  edit(withTiers({ gold: limits }));
  await until(async () => (await inForce()).includes("gold"), "the new tier");
  const gold = await issueKey(oneNode(redis.client), { tier: "gold", credits: 100 }, cliActor());
  const byTier = async (): Promise<Record<string, number> | null> =>
    ((await shown()) as unknown as { keys_by_tier: Record<string, number> | null }).keys_by_tier;
  await until(async () => (await byTier())?.gold === 1, "the count of keys");

  const planned = `${gateway.configFile}.renamed`;
  writeFileSync(planned, JSON.stringify(withTiers({ golt: limits })));
  const { code, stdout } = await diff(planned, "--admin", gateway.adminUrl, "--json");
  expect(code, "it would be refused").toBe(1);
  expect(JSON.parse(stdout)).toMatchObject({
    tiers_in_use: [{ tier: "gold", keys: 1 }],
    refused: [expect.stringMatching(/1 key uses tier gold/)],
  });
  expect(await shown()).toMatchObject({ unread_partitions: 0 });

  edit(withTiers({ golt: limits }));
  await until(async () => !(await shown()).last_reload.successful, "the refusal");
  expect((await shown()).last_reload.problems).toMatchObject([
    { path: "tiers.gold", message: expect.stringMatching(/^1 key uses tier gold.*is golt a slip of it/) },
  ]);
  const limitOf = async () =>
    limitsOf(await send(gateway.url, "GET", "/api/v1/credits", { key: gold.key })).limit;
  expect(await limitOf()).toBe(7);
  edit(withTiers({ gold: { ...limits, rate_limit: 8, deprecated: true } }));
  await until(async () => (await limitOf()) === 8, "the deprecated tier's limits");
});
