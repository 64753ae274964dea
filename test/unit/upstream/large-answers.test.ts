import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test, vi } from "vitest";
import { validateGeneration } from "../../../src/domain/generation.ts";
import { JSON_BODY_BYTES_MAX } from "../../../src/domain/limits.ts";
import { createJsonClient } from "../../../src/upstream/json-client.ts";
import {
  ANSWER_BYTES_MAX,
  LargeAnswers,
  SMALL_ANSWER_BYTES,
  type SpacedWork,
} from "../../../src/upstream/large-answers.ts";
import { createUpstream } from "../../../src/upstream/upstream.ts";

function givenUpstream(answer: (body: string) => string) {
  const server = createServer(async (req, res) => {
    const chunks: Buffer[] = [];
    for await (const chunk of req) chunks.push(chunk);
    res.end(answer(Buffer.concat(chunks).toString()));
  });
  return givenServed(server);
}

async function givenServed(server: Server) {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const upstream = createUpstream({
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    apiKey: undefined,
    connectTimeoutMs: 5000,
    headersTimeoutMs: 60_000,
    totalTimeoutMs: 60_000,
    keepAliveTimeoutMs: 4000,
    connections: 64,
    pollConnections: 64,
    idempotent: false,
  });
  onTestFinished(async () => {
    await upstream.close();
    server.close();
  });
  return upstream;
}

/** Each UTF-16 unit by its number, as encoders do that trust nothing. */
const escaped = (text: string): string =>
  Array.from(
    { length: text.length },
    (_, at) => `\\u${text.charCodeAt(at).toString(16).padStart(4, "0")}`,
  ).join("");

const echo = (body: string): string =>
  `{"code":200,"msg":"success","data":{"task_id":"t1","request":"${escaped(body)}"}}`;

/** A storyboard that fills a body to its last bytes. */
function largestBody(): string {
  const shot = (chars: number) => ({ Scene: "<".repeat(chars), duration: 0.4 });
  const body = {
    nFrames: "10",
    shots: Array.from({ length: 25 }, () => shot(10_000)),
    imageUrls: ["https://a.example/"],
  };
  body.imageUrls[0] += "x".repeat(JSON_BODY_BYTES_MAX - JSON.stringify(body).length);
  return JSON.stringify(body);
}

// Guarantee: the video was made, so it is charged, however long-winded the upstream repeats what it was asked.
test("an answer that repeats the largest request, each character by its number, is read", async () => {
  const text = largestBody();
  expect(Buffer.byteLength(text)).toBe(JSON_BODY_BYTES_MAX);
  const validation = validateGeneration(
    "gen2-pro/storyboard",
    JSON.parse(text),
    "https://videos.example.com",
  );
  if (!validation.ok) throw new Error(JSON.stringify(validation.problems));
  const upstream = await givenUpstream(echo);
  const outcome = await upstream.generate("/x", validation.text, { accountId: "a", requestId: "r1" });
  expect(outcome).toMatchObject({ outcome: "accepted", taskId: "t1" });
});

test("an answer beyond that is not read to its end", async () => {
  const upstream = await givenUpstream(() => " ".repeat(ANSWER_BYTES_MAX + 1));
  expect(await upstream.generate("/x", "{}", { accountId: "a", requestId: "r1" })).toEqual({
    outcome: "unclear",
    detail: `the answer is larger than ${ANSWER_BYTES_MAX} bytes; HTTP 200, no code: ${" ".repeat(200)}`,
  });
});

test("many large answers at a time all arrive whole, though they wait for one another", async () => {
  const upstream = await givenUpstream(() => echo("x".repeat(150_000)));
  const outcomes = await Promise.all(
    Array.from({ length: 48 }, () => upstream.generate("/x", "{}", { accountId: "a", requestId: "r1" })),
  );
  expect(outcomes.filter(({ outcome }) => outcome === "accepted")).toHaveLength(48);
});

// Guarantee: many large answers at the same moment hold up everybody else for one of them, not for all.
test("large answers that come at the same moment are parsed in different ticks, of generations and of polls", async () => {
  const ends: (() => void)[] = [];
  const whole = (task: string): string =>
    JSON.stringify({ code: 200, data: { task_id: task, status: "pending", echo: "x".repeat(100_000) } });
  const server = createServer((req, res) => {
    const text = whole(req.method === "GET" ? req.url!.split("/").at(-1)! : "t1");
    res.setHeader("content-length", text.length);
    res.write(text.slice(0, -1));
    ends.push(() => res.end(text.slice(-1)));
    // All in one tick: their last bytes are read in one as well.
    if (ends.length === 8) for (const end of ends) end();
  });
  const upstream = await givenServed(server);
  let ticks = 0;
  const seenAt = (outcome: Promise<{ outcome: string }>) =>
    outcome.then((read) => {
      setImmediate(() => ticks++);
      return { outcome: read.outcome, tick: ticks };
    });
  const read = await Promise.all(
    [0, 1, 2, 3].flatMap((nth) => [
      seenAt(upstream.generate("/x", "{}", { accountId: "a", requestId: "r1" })),
      seenAt(upstream.poll(`t${nth}`, { accountId: "a", requestId: "r2" })),
    ]),
  );
  expect(read.map(({ outcome }) => outcome)).toEqual([0, 1, 2, 3].flatMap(() => ["accepted", "task"]));
  expect(new Set(read.map(({ tick }) => tick)).size).toBe(8);
});

// Guarantee: the answer has come in time, so its task is charged, however many others are parsed before it.
test("an answer that waits to be parsed does not time out", async () => {
  const server = createServer((_req, res) => res.end(echo("x".repeat(50_000)))).listen(0, "127.0.0.1");
  await once(server, "listening");
  // Its turn comes long after the time for an answer is over.
  const { promise: added, resolve: add } = Promise.withResolvers<() => void>();
  const largeAnswerWork = { add } as unknown as SpacedWork;
  const exchanger = createJsonClient({
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    apiKey: undefined,
    connectTimeoutMs: 5000,
    headersTimeoutMs: 20_000,
    totalTimeoutMs: 20_000,
    keepAliveTimeoutMs: 4000,
    connections: 1,
    largeAnswerWork,
  });
  onTestFinished(async () => {
    await exchanger.close();
    server.close();
  });
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  onTestFinished(() => void vi.useRealTimers());
  const sent = exchanger.send({
    method: "POST",
    path: "/x",
    headers: [],
    body: "{}",
    budgetMs: 1000,
    owner: "a",
  });
  const parse = await added;
  vi.advanceTimersByTime(60_000);
  parse();
  expect(await sent).toMatchObject({ outcome: "answered", status: 200 });
});

/** An answer under way: what was called last. */
function reading() {
  const calls: string[] = [];
  return { calls, pause: () => void calls.push("pause"), resume: () => void calls.push("resume") };
}

// Guarantee: 256 large answers at a time take the memory of sixteen.
test("sixteen large answers are read at a time; the others wait in order, and none takes a place twice", () => {
  const places = new LargeAnswers();
  const all = Array.from({ length: 20 }, reading);
  for (const each of all) places.enter(each);
  expect(all.map(({ calls }) => calls.join()).slice(14)).toEqual([
    "",
    "",
    "pause",
    "pause",
    "pause",
    "pause",
  ]);
  // An answer that is given up while it waits frees no place.
  places.leave(all[16]!);
  expect(all[17]!.calls).toEqual(["pause"]);
  places.leave(all[0]!);
  expect(all[17]!.calls).toEqual(["pause", "resume"]);
  expect(all[18]!.calls).toEqual(["pause"]);
  for (const each of [...all.slice(1, 16), all[17]!, all[18]!, all[19]!]) places.leave(each);
  const next = Array.from({ length: 17 }, reading);
  for (const each of next) places.enter(each);
  expect(next.filter(({ calls }) => calls.length > 0)).toEqual([next[16]]);
});

test("each answer of an upstream beyond 64 KiB takes a place and gives it up, a small one takes none", async () => {
  const enter = vi.spyOn(LargeAnswers.prototype, "enter");
  const leave = vi.spyOn(LargeAnswers.prototype, "leave");
  onTestFinished(() => void vi.restoreAllMocks());
  const sizes = [100, SMALL_ANSWER_BYTES];
  const server = createServer((_req, res) => res.end(echo("x".repeat(sizes.shift()!))));
  const upstream = await givenServed(server);
  for (const places of [0, 1]) {
    await upstream.generate("/x", "{}", { accountId: "a", requestId: "r" });
    expect([enter.mock.calls.length, leave.mock.calls.length]).toEqual([places, places]);
  }
});
