import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type IncomingHttpHeaders, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { runHere } from "../support/cli.ts";
import { randomId } from "../support/store.ts";
import { givenRedis } from "../support/store-stage.ts";

const SECRET = "upstream-secret-4f9a";
const TASK_ID = "task_81c";

interface Scripted {
  /** 200 when left out. */
  status?: number;
  /** Sent as JSON; a text as it is. */
  body: unknown;
}
/** `hang` never answers, `reset` breaks the connection. */
type Answer = Scripted | "hang" | "reset";

interface Seen {
  method: string;
  path: string;
  headers: IncomingHttpHeaders;
  body: string;
  /** The command's output when this arrived. */
  written: string;
}

const task = (data: object): Answer => ({ body: { code: 200, data: { task_id: TASK_ID, ...data } } });
const ACCEPTED = task({ status: "pending" });
const COMPLETED = task({ status: "completed", video_url: "https://cdn.example/v.mp4?sig=signed-4711" });
const failure = (status: number, error: string): Answer => ({ status, body: { code: status, error } });

describe("doctor --generate", () => {
  let dir: string;
  let server: Server | undefined;
  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), "tollgate-generate-"));
  });
  afterEach(() => {
    server?.closeAllConnections();
    server?.close();
  });
  afterAll(() => rm(dir, { recursive: true, force: true }));

  /** An upstream below a base path that nobody must see. The last answer of each kind is repeated. */
  async function givenUpstream(script: { generations: Answer[]; polls?: Answer[] }) {
    const seen: Seen[] = [];
    const next = { POST: [...script.generations], GET: [...(script.polls ?? [])] };
    server = createServer(async (request, response) => {
      const { method = "", url: path = "", headers } = request;
      let body = "";
      for await (const chunk of request) body += chunk;
      const isOurs = path.includes("/api/v1/gen2") || path.endsWith(`/tasks/${TASK_ID}`);
      // Anything else is a check that makes no task.
      if (!isOurs) {
        response.writeHead(404).end('{"code":404}');
        return;
      }
      const written = [process.stdout, process.stderr].flatMap(
        (stream) => vi.mocked(stream.write).mock.calls,
      );
      seen.push({ method, path, headers, body, written: written.join("") });
      const answers = next[method as "GET" | "POST"];
      const answer = (answers.length > 1 ? answers.shift() : answers[0]) ?? "reset";
      if (answer === "hang") return;
      if (answer === "reset") {
        request.socket.resetAndDestroy();
        return;
      }
      const text = typeof answer.body === "string" ? answer.body : JSON.stringify(answer.body);
      response.writeHead(answer.status ?? 200, { "content-type": "application/json" }).end(text);
    });
    await once(server.listen(0, "127.0.0.1"), "listening");
    const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
    return { seen, host, url: `http://${host}/secret-path` };
  }

  async function runWith(
    upstream: { url: string },
    options: { args?: string[]; settings?: object; env?: Record<string, string> } = {},
  ) {
    const { args = ["--json"], settings = {}, env } = options;
    const file = join(dir, `${randomId("config")}.yaml`);
    // Without a port where a gateway of this machine may be.
    await writeFile(file, JSON.stringify({ upstream: settings, admin: { port: 1 } }));
    const ran = await runHere(["doctor", "--generate", ...args], {
      UPSTREAM_URL: upstream.url,
      UPSTREAM_API_KEY: SECRET,
      TOLLGATE_CONFIG: file,
      ...env,
    });
    for (const shown of [ran.stdout, ran.stderr]) {
      expect(shown).not.toContain(SECRET);
      expect(shown).not.toContain("secret-path");
    }
    return ran;
  }

  /** Runs it with --json. */
  async function generate(upstream: { url: string }, options: Parameters<typeof runWith>[1] = {}) {
    const ran = await runWith(upstream, { ...options, args: ["--json", ...(options.args ?? [])] });
    expect(ran.stdout.trimEnd().split("\n")).toHaveLength(1);
    const { ok, checks, generation } = JSON.parse(ran.stdout);
    const check = checks.at(-1);
    expect(check).toMatchObject({ name: "generation", message: expect.any(String) });
    expect({ ok, code: ran.code }).toEqual(
      // The Redis of tests keeps nothing, which is not what is tested here.
      checks.every((one: { ok: boolean }) => one.ok) ? { ok: true, code: 0 } : { ok: false, code: 1 },
    );
    const findings: string[] = generation.steps.map(({ finding }: { finding: string }) => finding);
    return { ...ran, check, generation, findings };
  }

  const posts = (seen: readonly Seen[]) => seen.filter(({ method }) => method === "POST");

  // Guarantee: an operator knows the price before anything is sent, and nobody's account pays it.
  test("makes one video, says before what it costs, and writes nothing to Redis", async () => {
    const redis = await givenRedis();
    try {
      const env = { REDIS_URL: redis.url };
      const polls = [task({ status: "queued" }), task({ status: "processing" }), COMPLETED];
      const upstream = await givenUpstream({ generations: [ACCEPTED], polls });
      await runHere(["doctor"], { ...env, UPSTREAM_URL: upstream.url });
      const before = await redis.client.dbsize();
      const { check, generation, findings, stderr } = await generate(upstream, { env });
      expect(await redis.client.dbsize()).toBe(before);

      expect(check).toMatchObject({ ok: true, status: "ok" });
      expect(check.message).toMatch(/^task task_81c completed after [\d.]+ s; the video is at cdn\.example$/);
      expect(generation).toMatchObject({
        host: upstream.host,
        endpoint: "gen2/text-to-video",
        price: 10,
        request_id: expect.stringMatching(/^doctor-/),
        task_id: TASK_ID,
        polls: 3,
      });
      const { request_id } = generation;
      const sending = `sending POST /api/v1/gen2/text-to-video as request ${request_id}`;
      expect(findings).toEqual([sending, "accepted, task task_81c", "pending", "processing", "completed"]);
      expect(generation.steps.map((step: { http_statuses: number[] }) => step.http_statuses)).toEqual([
        [],
        [200],
        [200],
        [200],
        [200],
      ]);
      const [post, ...gets] = upstream.seen;
      expect(post).toMatchObject({
        method: "POST",
        path: "/secret-path/api/v1/gen2/text-to-video",
        headers: {
          authorization: `Bearer ${SECRET}`,
          "idempotency-key": request_id,
          "x-request-id": request_id,
        },
      });
      expect(Object.keys(JSON.parse(post!.body))).toEqual(["prompt", "aspectRatio"]);
      expect(post!.written).toMatch(/10 credits by config\/prices\/.*No customer's account is charged/);
      expect(post!.written).toContain(sending);
      expect(gets[0]!.written).toContain("accepted, task task_81c");
      expect(gets).toHaveLength(3);
      expect(stderr + JSON.stringify(generation)).not.toContain("signed-4711");
    } finally {
      await redis.stop();
    }
  });

  test("says the same in words, each step when it is seen", async () => {
    const upstream = await givenUpstream({ generations: [ACCEPTED], polls: [COMPLETED] });
    const { stdout, stderr } = await runWith(upstream, { args: [] });
    expect(stderr).toBe("");
    expect(stdout).toMatch(/ {2}HTTP 200 {2}accepted, task task_81c\n.* {2}HTTP 200 {2}completed\n/);
    expect(stdout).toMatch(/\n\nok {4}generation {2}task task_81c completed after .*\n$/);
    expect(stdout).not.toContain("signed-4711");
  });

  test("takes the cheapest generation of the price file", async () => {
    const prices = join(dir, "prices.yaml");
    const flat = { "gen2/text-to-video": 30, "gen2/image-to-video": 1, "gen2/watermark-remove": 1 };
    const pro = { "gen2-pro/text-to-video": 20, "gen2-pro/image-to-video": 1, "gen2-pro/storyboard": 1 };
    await writeFile(prices, JSON.stringify({ ...flat, ...pro }));
    const file = join(dir, "priced.yaml");
    await writeFile(file, JSON.stringify({ prices, admin: { port: 1 } }));
    const upstream = await givenUpstream({ generations: [ACCEPTED], polls: [COMPLETED] });
    const { generation } = await generate(upstream, { env: { TOLLGATE_CONFIG: file } });
    expect(generation).toMatchObject({ endpoint: "gen2-pro/text-to-video", price: 20 });
    expect(JSON.parse(upstream.seen[0]!.body)).toMatchObject({ duration: 10, quality: "standard" });
  });

  test("names the task that failed", async () => {
    const upstream = await givenUpstream({ generations: [ACCEPTED], polls: [task({ status: "failed" })] });
    const { code, check, generation } = await generate(upstream);
    expect({ code, check }).toMatchObject({
      code: 1,
      check: {
        status: "fail",
        message: expect.stringMatching(/^task task_81c failed at /),
        advice: `ask the upstream's support about task task_81c, request ${generation.request_id}`,
      },
    });
  });

  test.each([
    [
      "401",
      failure(401, `no such key: ${SECRET}`),
      /refuses this gateway, and made no video: HTTP 401/,
      /UPSTREAM_API_KEY/,
    ],
    ["429", failure(429, "slow down"), /limits this gateway, and made no video/, /higher limit/],
    [
      "422",
      failure(422, "prompt too calm"),
      /refuses the request.*prompt too calm/,
      /support about request doctor-/,
    ],
    ["503", failure(503, "closed"), /not available, and made no video/, /the check `upstream`/],
  ])("a generation that is refused with %s made none", async (_, answer, message, advice) => {
    const upstream = await givenUpstream({ generations: [answer] });
    const { code, check, generation } = await generate(upstream);
    expect({ code, status: check.status, task: generation.task_id }).toEqual({
      code: 1,
      status: "fail",
      task: null,
    });
    expect(check.message).toMatch(message);
    expect(check.advice).toMatch(advice);
    expect(upstream.seen).toHaveLength(1);
  });

  // Guarantee: a video that may have been made is never followed by a second one on our advice.
  test.each<[string, Answer, object]>([
    ["a broken connection", "reset", {}],
    ["no answer", "hang", { connect_timeout: "200ms", headers_timeout: "200ms", total_timeout: "400ms" }],
    ["HTTP 500", failure(500, "oops"), {}],
    ["HTTP 502 with a task id", { status: 502, body: { code: 502, data: { task_id: TASK_ID } } }, {}],
  ])("%s leaves it unknown: it is sent once, and not advised again", async (_, answer, settings) => {
    const upstream = await givenUpstream({ generations: [answer] });
    const { code, check, generation, stderr } = await generate(upstream, { settings });
    expect(code).toBe(1);
    expect(check.message).toMatch(/^whether .* made a video is not known: /);
    expect(check.advice).toContain(`may have been made and billed`);
    expect(check.advice).toContain(`request ${generation.request_id}`);
    expect(stderr + check.advice).not.toMatch(/generation.*\b(again|repeat|retry)\b/i);
    expect(upstream.seen).toHaveLength(1);
    if (typeof answer === "object" && answer.status === 502) expect(check.message).toContain(TASK_ID);
  });

  test("with upstream.idempotency_key it is sent again under the same key, and each answer is told", async () => {
    const generations = [failure(500, "oops"), failure(502, "oops"), ACCEPTED];
    const upstream = await givenUpstream({ generations, polls: [COMPLETED] });
    const { check, generation } = await generate(upstream, { settings: { idempotency_key: true } });
    expect(check.status).toBe("ok");
    expect(generation.steps[1]).toMatchObject({ http_statuses: [500, 502, 200] });
    const keys = posts(upstream.seen).map(({ headers }) => headers["idempotency-key"]);
    expect(keys).toEqual(Array(3).fill(generation.request_id));
  });

  test.each<[string, Answer]>([
    ["the poll's outcome is failed: HTTP 500", failure(500, "oops")],
    ["the poll's outcome is rate limited: HTTP 429", { status: 429, body: "" }],
    ["the poll's outcome is refused: HTTP 408", failure(408, "late")],
    ["an unknown state: dreaming", task({ status: "dreaming" })],
    ["completed, but without a usable video_url", task({ status: "completed", video_url: null })],
  ])("goes on after a poll that says: %s", async (finding, answer) => {
    const upstream = await givenUpstream({ generations: [ACCEPTED], polls: [answer, COMPLETED] });
    const { check, findings, generation } = await generate(upstream);
    expect({ status: check.status, polls: generation.polls }).toEqual({ status: "ok", polls: 2 });
    expect(findings.slice(2)).toEqual([expect.stringContaining(finding), "completed"]);
  });

  test.each<[string, Answer, RegExp]>([
    ["404", failure(404, "no such task"), /different servers; the video may be made and billed/],
    ["404 of a web server", { status: 404, body: "<h1>Not Found</h1>" }, /different servers/],
    ["401", failure(401, "who?"), /generations are accepted and polls are refused/],
    ["410", failure(410, "was removed"), /polls are refused; the video may be made and billed/],
  ])("a poll answered with %s is the last", async (_, answer, advice) => {
    const upstream = await givenUpstream({ generations: [ACCEPTED], polls: [answer] });
    const { code, check, generation } = await generate(upstream);
    expect({ code, polls: generation.polls }).toEqual({ code: 1, polls: 1 });
    expect(check.message).toMatch(/^task task_81c was made, but cannot be polled: /);
    expect(check.advice).toMatch(advice);
  });

  test.each<[string, Answer, RegExp]>([
    ["a task that is not ready", task({ status: "processing" }), /the last poll said: processing$/],
    [
      "a limit that lasts longer",
      { status: 429, body: { code: 429, retryAfter: 3600 } },
      /rate limited: HTTP 429/,
    ],
    ["a poll that hangs", "hang", /no poll was answered$/],
  ])("ends after --timeout with %s, and advises no second one", async (_, answer, message) => {
    const upstream = await givenUpstream({ generations: [ACCEPTED], polls: [answer] });
    const { code, check } = await generate(upstream, { args: ["--timeout", "1s"] });
    expect({ code, status: check.status }).toEqual({ code: 1, status: "fail" });
    expect(check.message).toMatch(/^the task has not ended within 1 s; /);
    expect(check.message).toMatch(message);
    expect(check.advice).toMatch(/^the task goes on at the upstream, and may be billed: .*task_81c/);
    expect(check.advice).not.toMatch(/again|repeat|retry/);
    expect(posts(upstream.seen)).toHaveLength(1);
  });

  // Guarantee: the upstream writes nothing on an operator's terminal but visible text.
  test.each([[[]], [["--json"]]])("shows no control characters of the upstream with %j", async (args) => {
    const hostile = "\u001b[2J\u001b]52;c;aGk=\u0007\u009b31m\u202eoops\r\n";
    const polls = [failure(500, hostile), task({ status: hostile }), failure(410, hostile)];
    const upstream = await givenUpstream({ generations: [ACCEPTED], polls });
    const { stdout, stderr } = await runWith(upstream, { args });
    expect(stdout).toContain("oops");
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these must not be there.
    expect(stdout + stderr).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/);
    const refusing = await givenUpstream({ generations: [failure(422, hostile)] });
    const refused = await runWith(refusing, { args });
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these must not be there.
    expect(refused.stdout + refused.stderr).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/);
  });

  test("makes none with a config that is not valid, and --timeout needs it", async () => {
    const upstream = await givenUpstream({ generations: [ACCEPTED] });
    const broken = await runWith(upstream, { settings: { ulr: 1 } });
    const { checks, generation } = JSON.parse(broken.stdout);
    expect({ code: broken.code, generation }).toEqual({ code: 1, generation: undefined });
    expect(checks.at(-1)).toMatchObject({ name: "generation", message: "not made: the config is not valid" });
    const alone = await runHere(["doctor", "--timeout", "1s"]);
    expect({ code: alone.code, stderr: alone.stderr }).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("--timeout belongs to --generate"),
    });
    const bad = await runHere(["doctor", "--generate", "--timeout", "10"]);
    expect(bad.stderr).toContain("It must be a duration with its unit, from 1s to 24h.");
    expect(upstream.seen).toEqual([]);
  });
});
