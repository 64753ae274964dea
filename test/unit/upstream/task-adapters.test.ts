import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { createLogger } from "../../../src/telemetry/log.ts";
import type { Adapter } from "../../../src/upstream/adapter.ts";
import type { AdapterChoice } from "../../../src/upstream/adapter-choice.ts";
import {
  endpointOf,
  type RouteSettings,
  routeOf,
  taskTag,
  upstreamTag,
} from "../../../src/upstream/task-route.ts";
import { TaskUpstreams } from "../../../src/upstream/task-upstreams.ts";
import { createUpstream } from "../../../src/upstream/upstream.ts";

const URL_NOW = "https://now.example.com/base";

function choice(name: string): AdapterChoice {
  const adapter: Adapter = {
    name,
    auth: { header: "x-key", scheme: name },
    create: () => ({ method: "POST", path: "/make", json: {} }),
    created: () => ({ outcome: "unclear" }),
    poll: ({ taskId, endpoint }) => ({ method: "GET", path: `/${name}/${taskId}?of=${endpoint}` }),
    polled: () => ({ outcome: "task", status: "running", task: {} }),
  };
  return { name, id: name, adapter: () => adapter, options: {} };
}

const OWN = choice("own");
const settings = (over: Partial<RouteSettings> = {}): RouteSettings => ({
  url: URL_NOW,
  apiKey: "key",
  previousUrl: undefined,
  previousApiKey: undefined,
  replaces: [],
  ...over,
});

test("the tag of a task names its adapter and endpoint, but nothing for the envelope", () => {
  const plain = upstreamTag(URL_NOW, "key");
  expect(taskTag(plain, "/api/v1/gen2/text-to-video")).toBe(plain);
  expect(endpointOf(plain)).toBeUndefined();
  const tag = taskTag(upstreamTag(URL_NOW, "key", "own"), "/api/v1/gen2-pro/storyboard");
  expect(tag).toBe(`${plain}#own/gen2-pro/storyboard`);
  expect(endpointOf(tag)).toBe("gen2-pro/storyboard");
  expect(endpointOf(`${plain}#own/elsewhere`)).toBeUndefined();
});

const TAG = taskTag(upstreamTag(URL_NOW, "key", "own"), "/api/v1/gen2/text-to-video");

test.each<[string, string, Partial<RouteSettings>, AdapterChoice[], object]>([
  ["of the present adapter", TAG, { dialect: OWN }, [], { to: "present" }],
  [
    "of the previous one",
    TAG,
    { previousDialect: OWN },
    [],
    { to: "other", url: URL_NOW, apiKey: "key", dialect: OWN },
  ],
  ["of one that this process has used", TAG, {}, [OWN], { to: "other", dialect: OWN }],
  ["of one that nobody knows", TAG, {}, [], { to: "unroutable", lacks: "adapter", adapter: "own" }],
  [
    "of the envelope, before another adapter",
    upstreamTag(URL_NOW, "key"),
    { dialect: OWN },
    [],
    { to: "other", url: URL_NOW, dialect: { name: "envelope" } },
  ],
  ["whose credential was rotated", TAG, { dialect: OWN, apiKey: "key-2" }, [], { to: "present" }],
])("a task %s", (_name, tag, over, used, route) => {
  expect(routeOf(tag, settings(over), [], used)).toMatchObject(route);
});

test("after a live change, tasks are polled with the adapter, address and headers that made them", async () => {
  const requests: { url: string | undefined; method: string | undefined; key: unknown; team: unknown }[] = [];
  const server = createServer(({ url, method, headers }, response) => {
    requests.push({ url, method, key: headers["x-key"], team: headers["x-team"] });
    response.end("{}");
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const timeouts = {
    connectTimeoutMs: 5000,
    headersTimeoutMs: 5000,
    totalTimeoutMs: 5000,
    keepAliveTimeoutMs: 1000,
  };
  const common = { ...settings(), url, ...timeouts, connections: 1, pollConnections: 8, idempotent: false };
  const before = { ...common, dialect: OWN, headers: { "x-team": "a" } };
  const after = { ...common, dialect: choice("other") };
  const upstreams = new TaskUpstreams({ log: createLogger("error", { write: () => undefined }) });
  const present = createUpstream(after);
  onTestFinished(async () => {
    await Promise.all([upstreams.close(), present.close()]);
    server.closeAllConnections();
    server.close();
  });
  upstreams.using(url, before);
  upstreams.using(url, after);
  const tag = taskTag(upstreamTag(url, "key", "own"), "/api/v1/gen2/text-to-video");
  const maker = upstreams.of(tag, present, after);
  expect(maker).not.toBe(present);
  const outcome = await maker.poll("t1", { accountId: "a", requestId: "r1", tag });
  expect(outcome).toMatchObject({ outcome: "task", status: "processing" });
  expect(upstreams.of(present.tagOf("/api/v1/gen2/text-to-video"), present, after)).toBe(present);
  const path = "/own/t1?of=gen2/text-to-video";
  expect(requests).toEqual([{ url: path, method: "GET", key: "own key", team: "a" }]);
});
