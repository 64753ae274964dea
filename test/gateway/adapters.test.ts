import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, onTestFinished, test } from "vitest";
import type { Adapter } from "../../src/upstream/adapter.ts";
import type { AdapterChoice } from "../../src/upstream/adapter-choice.ts";
import { expectStatus, givenGateway, until } from "../support/gateway.ts";
import { tinyImage } from "../support/images.ts";
import { BOAT, consumption, revoke, TEXT_TO_VIDEO } from "./spec-stage.ts";

/** Of an API with other paths, words and shapes than the interface's. */
const OWN: Adapter = {
  name: "own",
  auth: { header: "x-key", scheme: "" },
  create: ({ body }) =>
    body.aspectRatio === "1:1"
      ? { unsupported: [{ path: "/aspectRatio", message: "aspectRatio 1:1 is not supported" }] }
      : { method: "POST", path: "/videos", json: { text: body.prompt }, headers: { "x-version": "2" } },
  created: ({ status, json }) => {
    if (status === 422) return { outcome: "refused", text: String(json?.why), status: 422 };
    return typeof json?.id === "string" ? { outcome: "accepted", taskId: json.id } : { outcome: "unclear" };
  },
  poll: ({ taskId, endpoint }) => ({ method: "POST", path: "/ask", json: { id: taskId, endpoint } }),
  polled: ({ status, json }) => {
    if (status === 401 || status === 403) return { outcome: "refused_gateway" };
    if (status === 404) return { outcome: "gone" };
    if (json?.state === "READY")
      return { outcome: "result_elsewhere", request: { method: "GET", path: "/result" } };
    return { outcome: "task", status: String(json?.state), task: { progress: json?.percent } };
  },
  result: ({ json }) => ({ outcome: "task", status: "completed", task: { video_url: json?.file } }),
  upload: () => ({ path: "/files", fields: { folder: "images" }, fileField: "data" }),
  uploaded: ({ json }) => ({ outcome: "uploaded", url: String(json?.href), expiresAt: undefined }),
};

const choice = (adapter: Adapter): AdapterChoice => ({
  name: adapter.name,
  id: adapter.name,
  adapter: () => adapter,
  options: {},
});

interface SeenRequest {
  method: string;
  path: string;
  headers: NodeJS.Dict<string | string[]>;
  body: string;
}

/** An upstream that answers the next request with what is set. */
async function givenUpstream() {
  const requests: SeenRequest[] = [];
  const answers: Record<string, [status: number, body: string]> = {
    "/result": [200, '{"file":"https://v.example/1.mp4"}'],
    "/files": [200, '{"href":"https://files.example/1.png"}'],
  };
  const server = createServer(async (request, response) => {
    const { method = "", url = "", headers } = request;
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    requests.push({ method, path: url, headers, body: Buffer.concat(chunks).toString("latin1") });
    const [status, body] = answers[url] ?? [404, "{}"];
    response.writeHead(status).end(body);
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const creates = () =>
    requests.filter(({ path }) => path === "/videos" || path.startsWith("/api/v1/gen2")).length;
  return { url, requests, answers, creates };
}

type Upstream = Awaited<ReturnType<typeof givenUpstream>>;
type UpstreamSettings = NonNullable<NonNullable<Parameters<typeof givenGateway>[0]>["config"]>["upstream"];

async function givenAdapter(upstream: Upstream, settings: UpstreamSettings = { dialect: choice(OWN) }) {
  const config = { upstream: { headers: { "x-team": "a" }, ...settings }, tasks: { cacheMs: 0 } };
  const gateway = await givenGateway({ upstreamUrl: upstream.url, config });
  onTestFinished(() => gateway.stop());
  return gateway;
}

async function given(settings?: UpstreamSettings) {
  const upstream = await givenUpstream();
  const gateway = await givenAdapter(upstream, settings);
  const issued = await gateway.givenKey({ credits: 100 });
  const { key } = issued;
  return {
    ...upstream,
    upstream,
    gateway,
    key,
    create: (body: object = BOAT) => gateway.request("POST", TEXT_TO_VIDEO, { key, body }),
    poll: (id: string) => gateway.request("GET", `/api/v1/tasks/${id}`, { key }),
    balance: () => consumption(gateway, issued),
  };
}

test("a generation, its polls and an upload speak the adapter's API, and the customer sees the interface's", async () => {
  const { answers, requests, create, poll, gateway, key } = await given();
  const id = `n/${crypto.randomUUID()}`;
  answers["/videos"] = [201, JSON.stringify({ id })];
  const made = await create();
  expectStatus(made, 200);
  const taskId = made.body.data.task_id;
  expect(taskId).toMatch(/^~e~[A-Za-z0-9_-]+$/);
  expect(requests[0]).toMatchObject({
    method: "POST",
    path: "/videos",
    body: JSON.stringify({ text: BOAT.prompt }),
  });
  expect(requests[0]!.headers).toMatchObject({
    "x-key": "upstream-secret",
    "x-version": "2",
    "x-team": "a",
    "user-agent": expect.stringMatching(/^tollgate\/\d/),
  });
  expect(requests[0]!.headers.authorization).toBeUndefined();

  answers["/ask"] = [200, '{"state":"Running","percent":"40%"}'];
  const running = await poll(taskId);
  expect(running.body.data).toMatchObject({ task_id: taskId, status: "processing", progress: 40 });
  expect(JSON.parse(requests.at(-1)!.body)).toEqual({ id, endpoint: "gen2/text-to-video" });
  answers["/ask"] = [200, '{"state":"READY"}'];
  expect((await poll(taskId)).body.data).toMatchObject({
    status: "completed",
    video_url: "https://v.example/1.mp4",
  });

  const form = new FormData();
  form.append("file", new Blob([new Uint8Array(tinyImage("image/png"))], { type: "image/png" }), "a.png");
  const headers = { authorization: `Bearer ${key}` };
  const uploaded = await fetch(`${gateway.url}/api/v1/upload`, { method: "POST", headers, body: form });
  expect(await uploaded.json()).toMatchObject({ data: { url: "https://files.example/1.png" } });
  expect(requests.at(-1)).toMatchObject({ path: "/files", headers: { "x-key": "upstream-secret" } });
  expect(requests.at(-1)!.body).toMatch(
    /name="folder"\r\n\r\nimages\r\n.*name="data"; filename="upload.png"/s,
  );
});

test("a parameter that the upstream lacks is refused with 400, before anything is held or sent", async () => {
  const { create, creates, balance } = await given();
  const refused = await create({ ...BOAT, aspectRatio: "1:1" });
  expectStatus(refused, 400);
  expect(refused.body.details).toEqual([
    { path: "/aspectRatio", message: "aspectRatio 1:1 is not supported" },
  ]);
  expect(creates()).toBe(0);
  expect((await balance()).held).toBe(0);
});

// The order of checks: validation, then the limits.
test("it is 400 also for a key that is over its limit and hammers", async () => {
  const { answers, gateway } = await given();
  answers["/videos"] = [200, JSON.stringify({ id: crypto.randomUUID() })];
  const { key } = await gateway.givenKey({ limits: { rate_limit: 1 } });
  const create = (body: object = BOAT) => gateway.request("POST", TEXT_TO_VIDEO, { key, body });
  expectStatus(await create(), 200);
  for (let n = 0; n < 8; n++) expect((await create()).body.code).toBe(2001);
  expectStatus(await create({ ...BOAT, aspectRatio: "1:1" }), 400);
});

// Guarantee: no charge without an id in hand, and no crash, whatever an upstream or an adapter does.
describe("nothing is charged, and the gateway goes on, for", () => {
  const throwing = (called: keyof Adapter) =>
    choice({
      ...OWN,
      [called]: () => {
        throw new Error("broken");
      },
    });
  const accepting = (taskId: unknown) =>
    choice({ ...OWN, created: () => ({ outcome: "accepted", taskId: taskId as string }) });

  test.each<[string, AdapterChoice, [number, string], number]>([
    ["an adapter that throws on an answer", throwing("created"), [200, '{"id":"x"}'], 502],
    ["an adapter that throws before anything is sent", throwing("create"), [200, '{"id":"x"}'], 502],
    ["a charge without an id", accepting(undefined), [200, "{}"], 502],
    ["an id of 10,000 characters", accepting("x".repeat(10_000)), [200, "{}"], 502],
    ["1 MiB of nested brackets", choice(OWN), [200, `{"id":${"[".repeat(1 << 20)}`], 502],
    ["HTML with 200", choice(OWN), [200, "<html>Welcome"], 502],
    ["a refusal", choice(OWN), [422, '{"why":"Too rude"}'], 422],
  ])("%s", async (_name, dialect, answer, status) => {
    const { answers, create, balance, gateway, creates } = await given({ dialect });
    answers["/videos"] = answer;
    expectStatus(await create(), status);
    expect(creates()).toBeLessThanOrEqual(1);
    expect((await balance()).totalUsed).toBe(0);
    const isFault = dialect.adapter().created !== OWN.created || dialect.adapter().create !== OWN.create;
    const faults = await gateway.metric("tollgate_upstream_adapter_faults_total");
    expect(faults.some((line) => !line.endsWith(" 0"))).toBe(isFault);
    if (isFault) expect(gateway.logs.join("\n")).toMatch(/adapter own: create/);
    expect((await fetch(`${gateway.adminUrl}/readyz`)).status).toBe(200);
  });

  test("a key that was revoked a moment ago, which is told so though the adapter throws", async () => {
    const { gateway } = await given({ dialect: throwing("create") });
    const issued = await gateway.givenKey();
    const { key } = issued;
    expectStatus(await gateway.request("GET", "/api/v1/credits", { key }), 200);
    await revoke(gateway, issued);
    expectStatus(await gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT }), 401);
  });

  test.each(["poll", "polled", "result"] as const)("a poll whose adapter throws in %s", async (called) => {
    const { answers, create, poll, gateway } = await given({ dialect: throwing(called) });
    answers["/videos"] = [200, JSON.stringify({ id: crypto.randomUUID() })];
    answers["/ask"] = [200, '{"state":"READY"}'];
    const made = await create();
    expectStatus(made, 200);
    expectStatus(await poll(made.body.data.task_id), 502);
    expect(gateway.logs.join("\n")).toContain(`adapter own: ${called} threw Error: broken`);
  });
});

// Guarantee: never a second create.
test.each([401, 403, 404])("a poll that is answered with %i sends no generation again", async (status) => {
  const { answers, create, poll, creates } = await given();
  answers["/videos"] = [200, JSON.stringify({ id: crypto.randomUUID() })];
  answers["/ask"] = [status, "{}"];
  const made = await create();
  for (let times = 0; times < 3; times++) await poll(made.body.data.task_id);
  expect(creates()).toBe(1);
});

test("tasks are asked for with the adapter that made them, and never made again", async () => {
  const { upstream, answers, requests, create, creates, key } = await given();
  answers["/videos"] = [200, JSON.stringify({ id: crypto.randomUUID() })];
  answers["/ask"] = [200, '{"state":"running"}'];
  const taskId = (await create()).body.data.task_id;
  const polledAt = async (gateway: Awaited<ReturnType<typeof givenGateway>>) =>
    gateway.request("GET", `/api/v1/tasks/${taskId}`, { key });

  const knowing = await givenAdapter(upstream, { previousDialect: choice(OWN) });
  expect((await polledAt(knowing)).body.data).toMatchObject({ task_id: taskId, status: "processing" });
  expect(requests.at(-1)).toMatchObject({ path: "/ask", headers: { "x-key": "upstream-secret" } });

  const before = requests.length;
  const ignorant = await givenAdapter(upstream, {});
  expectStatus(await polledAt(ignorant), 502);
  await until(() =>
    ignorant.logs.some((line) => line.includes("set upstream.previous_adapter to the file of own")),
  );
  expect(requests).toHaveLength(before);
  expect(creates()).toBe(1);
});
