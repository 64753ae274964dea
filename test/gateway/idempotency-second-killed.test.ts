import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { consumed, expectSound, readLedger } from "../support/audit.ts";
import { startFaultProxy } from "../support/fault-proxy.ts";
import { expectStatus, givenGateway, type Reply, send, type TestGateway, until } from "../support/gateway.ts";
import { givenPatientUpstream, type PatientUpstream } from "../support/patient-upstream.ts";
import { startGatewayProcess } from "../support/processes.ts";
import {
  COMMAND_TIMEOUT_MS,
  generate,
  givenKey,
  givenRedis,
  ready,
  TEXT_TO_VIDEO,
  type TestRedis,
} from "../support/store-stage.ts";

// The second of two requests with one Idempotency-Key is at a gateway that is killed, and started again on its journal.

let redis: TestRedis;
let upstream: PatientUpstream;
let proxy: Awaited<ReturnType<typeof startFaultProxy>>;
let twin: TestGateway;
let journal: string;
beforeAll(async () => {
  journal = await mkdtemp(join(tmpdir(), "tollgate-second-killed-"));
  redis = await givenRedis();
  upstream = await givenPatientUpstream();
  proxy = await startFaultProxy(redis.port);
  twin = await givenGateway({ redisUrl: redis.url, upstreamUrl: upstream.url });
  await ready(twin);
});
afterAll(async () => {
  upstream.stop();
  await twin.stop();
  await proxy.stop();
  await redis.stop();
  await rm(journal, { recursive: true, force: true });
});

const headers = { "idempotency-key": "twice" };
const keyed = (on: TestGateway, key: IssuedKey): Promise<Reply> => generate(on, key, undefined, headers);

const start = () =>
  startGatewayProcess({
    redisUrl: proxy.url,
    upstreamUrl: upstream.url,
    journal,
    config: { store: { command_timeout: `${COMMAND_TIMEOUT_MS}ms` } },
  });
type Killed = Awaited<ReturnType<typeof start>>;

/** How far the second comes; what the killed gateway had sent arrives in Redis when the result is called. */
type Phase = (second: () => Promise<Reply>) => Promise<() => Promise<unknown>>;

const PHASES: [string, Phase][] = [
  [
    "its ADMIT is on its way, and arrives later",
    async (second) => {
      const admission = proxy.strike("detain", "admit");
      second().catch(() => undefined);
      await admission.struck;
      return () => admission.release();
    },
  ],
  [
    "its ADMIT has run, and its VOID is in the journal and arrives later",
    async (second) => {
      const admission = proxy.strike("drop_reply", "admit");
      const voiding = proxy.strike("detain", "void");
      expectStatus(await second(), 503);
      await Promise.all([admission.struck, voiding.struck]);
      return () => voiding.release();
    },
  ],
  [
    "its ADMIT arrives after the VOID that the journal has replayed",
    async (second) => {
      const admission = proxy.strike("detain", "admit");
      const voiding = proxy.strike("reset_before", "void");
      expectStatus(await second(), 503);
      await Promise.all([admission.struck, voiding.struck]);
      return () => admission.release();
    },
  ],
];

async function killed(gateway: Killed): Promise<void> {
  gateway.signal("SIGKILL");
  await gateway.ended();
}

test.each(PHASES)("%s: the first keeps its hold, and its answer arrives", async (_, phase) => {
  const key = await givenKey(redis.client);
  const first = keyed(twin, key);
  await until(() => upstream.waiting.length === 1, "the first to reach the upstream");
  const before = await readLedger(redis.client, key);
  expect(before).toMatchObject({ held: 10, totalRequests: 1, windowEntries: 1 });

  const gateway = await start();
  const options = { key: key.key, body: { prompt: "A paper boat" }, headers };
  const arrives = await phase(() => send(gateway.url, "POST", TEXT_TO_VIDEO, options));
  await killed(gateway);
  const again = await start();
  try {
    expect(await readLedger(redis.client, key), "after the journal").toEqual(before);
    await arrives();
    expect(await readLedger(redis.client, key), "after what was on its way").toEqual(before);
    expectStatus(await send(again.url, "POST", TEXT_TO_VIDEO, options), 409);
    expect(upstream.waiting).toHaveLength(1);

    upstream.answer("task");
    const answered = await first;
    expectStatus(answered, 200);
    const ledger = await readLedger(redis.client, key);
    expectSound(ledger);
    expect(ledger).toMatchObject({ balance: 990, held: 0, totalRequests: 1, windowEntries: 1 });
    expect(consumed(ledger).map(({ taskId }) => taskId)).toEqual([answered.body.data.task_id]);
    const replay = await send(again.url, "POST", TEXT_TO_VIDEO, options);
    expect(replay.headers.get("idempotency-replayed")).toBe("true");
    expect(replay.body).toEqual(answered.body);
  } finally {
    await again.stop();
    await gateway.stop();
  }
});
