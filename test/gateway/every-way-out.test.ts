import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { API_PREFIX, GENERATION_ENDPOINTS, type GenerationEndpoint } from "../../src/domain/endpoints.ts";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import type { Behaviour } from "../../src/sandbox/generator/behaviour.ts";
import { expectSound, makeDue, readLedger } from "../support/audit.ts";
import { givenGateway, limitsOf, type TestGateway, until } from "../support/gateway.ts";
import { rawClient, rawPost } from "../support/raw-client.ts";
import { givenStage, ready, type Stage, sent } from "../support/store-stage.ts";

/** For the one way out that is a timeout: every other answer may take its time. */
const UPSTREAM = { connectTimeoutMs: 1000, headersTimeoutMs: 200, totalTimeoutMs: 400 };
/** Longer than any test here: no way out is a timeout of the store. */
const STORE = { commandTimeoutMs: 60_000 };

let stage: Stage;
let impatient: TestGateway;
beforeAll(async () => {
  stage = await givenStage({ config: { store: STORE, tasks: { sweepIntervalMs: 20 } } });
  impatient = await givenGateway({
    redisUrl: stage.redis.url,
    generator: stage.gateway.generator,
    config: { store: STORE, upstream: UPSTREAM },
  });
  await ready(impatient);
});
afterAll(async () => {
  await impatient.stop();
  await stage.stop();
});
beforeEach(() => {
  stage.gateway.generator.reset();
  stage.gateway.generator.requests.length = 0;
});

const IMAGE = "https://images.example.com/cat.png";
const BODIES: Record<GenerationEndpoint, object> = {
  "gen2/text-to-video": { prompt: "a boat" },
  "gen2/image-to-video": { imageUrl: IMAGE },
  "gen2-pro/text-to-video": { prompt: "a boat" },
  "gen2-pro/image-to-video": { imageUrl: IMAGE },
  "gen2/watermark-remove": { videoUrl: "https://videos.example.com/v.mp4" },
  "gen2-pro/storyboard": { nFrames: "10", shots: [{ Scene: "a boat", duration: 10 }] },
};

/** How a generation ends: what the upstream does, what is answered (0: the client has left), and who frees the slot. */
interface WayOut {
  way: string;
  behaviour: Partial<Behaviour>;
  status: number;
  by: "the answer" | "a poll" | "the sweeper";
}

const WAYS_OUT: WayOut[] = [
  { way: "completed, seen by a poll", behaviour: {}, status: 200, by: "a poll" },
  { way: "failed, seen by a poll", behaviour: { failRatio: 1 }, status: 200, by: "a poll" },
  { way: "completed, never polled", behaviour: {}, status: 200, by: "the sweeper" },
  { way: "failed, never polled", behaviour: { failRatio: 1 }, status: 200, by: "the sweeper" },
  { way: "refused", behaviour: { status: 400 }, status: 400, by: "the answer" },
  { way: "refused in the body", behaviour: { code: 402 }, status: 502, by: "the answer" },
  { way: "limited", behaviour: { status: 429 }, status: 429, by: "the answer" },
  { way: "upstream unavailable", behaviour: { status: 503 }, status: 502, by: "the answer" },
  { way: "upstream error", behaviour: { status: 500 }, status: 502, by: "the sweeper" },
  { way: "reset", behaviour: { fault: "reset" }, status: 502, by: "the sweeper" },
  { way: "truncated", behaviour: { fault: "truncate" }, status: 502, by: "the sweeper" },
  { way: "garbage", behaviour: { fault: "garbage" }, status: 502, by: "the sweeper" },
  { way: "no task id", behaviour: { taskId: "none" }, status: 502, by: "the sweeper" },
  { way: "timeout", behaviour: { fault: "hang" }, status: 504, by: "the sweeper" },
  { way: "client gone", behaviour: { delayMs: 50 }, status: 0, by: "the sweeper" },
];

// Guarantee: no route has a way out that keeps the slot: with one slot, the next generation is admitted.
describe("the slot comes back, of each endpoint", () => {
  test.each(WAYS_OUT)("$way, by $by", async ({ behaviour, status, by }) => {
    const { gateway, redis } = stage;
    gateway.generator.behave({ durationMs: 0, ...behaviour });
    const ended = GENERATION_ENDPOINTS.map(async (endpoint) => {
      const key = await stage.givenKey({ credits: 1000, limits: { max_concurrent: 1 } });
      if (status === 0) await leave(endpoint, key);
      else await answered(status === 504 ? impatient : gateway, endpoint, key, status, by);
      if (by === "the sweeper") expect(await makeDue(redis.client, key.accountId), endpoint).toBe(1);
      await until(async () => (await readLedger(redis.client, key)).slots.length === 0, `${endpoint}'s slot`);
      const ledger = await readLedger(redis.client, key);
      expectSound(ledger);
      expect(ledger.held, endpoint).toBe(0);
      return { endpoint, key };
    });
    const keys = await Promise.all(ended);

    gateway.generator.reset();
    for (const { endpoint, key } of keys) {
      const body = BODIES[endpoint];
      const next = await gateway.request("POST", API_PREFIX + endpoint, { key: key.key, body });
      expect(next, endpoint).toMatchObject({ status: 200 });
      expect(limitsOf(next).active, endpoint).toBe(1);
    }
  });
});

async function answered(
  gateway: TestGateway,
  endpoint: GenerationEndpoint,
  { key }: IssuedKey,
  status: number,
  by: WayOut["by"],
): Promise<void> {
  const reply = await gateway.request("POST", API_PREFIX + endpoint, { key, body: BODIES[endpoint] });
  expect(reply, endpoint).toMatchObject({ status });
  expect(limitsOf(reply).active, endpoint).toBe(by === "the answer" ? 0 : 1);
  if (by !== "a poll") return;
  const polled = await gateway.request("GET", `/api/v1/tasks/${reply.body.data.task_id}`, { key });
  expect(limitsOf(polled).active).toBe(0);
}

/** Sends a generation and goes away while the upstream works; the gateway finishes it alone. */
async function leave(endpoint: GenerationEndpoint, key: IssuedKey): Promise<void> {
  const client = await rawClient(stage.gateway.url);
  const { head, body } = rawPost(API_PREFIX + endpoint, key.key, BODIES[endpoint]);
  client.send(head + body);
  const path = API_PREFIX + endpoint;
  const isSent = () => sent(stage.gateway).some((request) => request.path === path);
  await until(isSent, "the request to reach the upstream");
  client.reset();
  const isBound = async () => (await readLedger(stage.redis.client, key)).totalUsed > 0;
  await until(isBound, "the task to be bound");
}
