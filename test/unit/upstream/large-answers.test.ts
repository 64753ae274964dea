import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { validateGeneration } from "../../../src/core/generation.ts";
import { JSON_BODY_BYTES_MAX } from "../../../src/core/request-limits.ts";
import { ANSWER_BYTES_MAX, LargeAnswers } from "../../../src/upstream/large-answers.ts";
import { createUpstream } from "../../../src/upstream/upstream.ts";

async function givenUpstream(answer: (body: string) => string) {
  const server = createServer(async (req, res) => {
    const chunks: Buffer[] = [];
    for await (const chunk of req) chunks.push(chunk);
    res.end(answer(Buffer.concat(chunks).toString()));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const upstream = createUpstream({
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    apiKey: undefined,
    connectTimeoutMs: 5000,
    headersTimeoutMs: 20_000,
    totalTimeoutMs: 20_000,
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
  const outcome = await upstream.generate("/x", validation.text, "r1");
  expect(outcome).toMatchObject({ outcome: "accepted", taskId: "t1" });
});

test("an answer beyond that is not read to its end", async () => {
  const upstream = await givenUpstream(() => " ".repeat(ANSWER_BYTES_MAX + 1));
  expect(await upstream.generate("/x", "{}", "r1")).toEqual({
    outcome: "unclear",
    detail: `the answer is larger than ${ANSWER_BYTES_MAX} bytes`,
  });
});

test("many large answers at a time all arrive whole, though they wait for one another", async () => {
  const upstream = await givenUpstream(() => echo("x".repeat(150_000)));
  const outcomes = await Promise.all(Array.from({ length: 48 }, () => upstream.generate("/x", "{}", "r1")));
  expect(outcomes.filter(({ outcome }) => outcome === "accepted")).toHaveLength(48);
});

/** An answer under way: what it was told last. */
function reading() {
  const told: string[] = [];
  return { told, pause: () => void told.push("pause"), resume: () => void told.push("resume") };
}

// Guarantee: 256 large answers at a time take the memory of sixteen.
test("sixteen large answers are read at a time; the others wait in order, and none takes a place twice", () => {
  const places = new LargeAnswers();
  const all = Array.from({ length: 20 }, reading);
  for (const each of all) places.enter(each);
  expect(all.map(({ told }) => told.join()).slice(14)).toEqual(["", "", "pause", "pause", "pause", "pause"]);
  // One that is given up while it waits frees no place.
  places.leave(all[16]!);
  expect(all[17]!.told).toEqual(["pause"]);
  places.leave(all[0]!);
  expect(all[17]!.told).toEqual(["pause", "resume"]);
  expect(all[18]!.told).toEqual(["pause"]);
  for (const each of [...all.slice(1, 16), all[17]!, all[18]!, all[19]!]) places.leave(each);
  const next = Array.from({ length: 17 }, reading);
  for (const each of next) places.enter(each);
  expect(next.filter(({ told }) => told.length > 0)).toEqual([next[16]]);
});
