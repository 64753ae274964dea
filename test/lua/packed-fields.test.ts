import { afterAll, beforeAll, expect, test } from "vitest";
import { detailsOf, LEDGER_START, readLedger } from "../../src/records/ledger-entries.ts";
import { requestName } from "../../src/records/names.ts";
import type { RequestRecord } from "../../src/records/records.ts";
import { createScriptRunner, type ScriptRunner } from "../../src/redis/script-runner.ts";
import { createStage, HOLD_MS, NOON_MS, openConnection, type TestConnection } from "../support/store.ts";
import { changeRequest, readRequest } from "../support/stored-requests.ts";
import { plantForTest } from "./mutant-client.ts";
import { inShare, PACKED_MUTANTS } from "./mutants.ts";

// A request is one text, in which a field ends at a space.

let connection: TestConnection;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());

const CALLBACK = "https://customer.example/a=b?status=%20bound#unknown=1";
const PRICES = `10 a%20b%25.yaml ${NOON_MS + 86_400_000} 12 next.yaml`;
const FINGERPRINT = "POST /a 100%25\tof = b";

interface Kept {
  held: RequestRecord;
  charged: unknown[];
  void: RequestRecord;
}

/** Records of a request with all fields that a customer or an operator words, and of its charge. */
async function keptBy(scripts?: ScriptRunner): Promise<Kept> {
  const stage = createStage(connection, scripts ? { scripts } : {});
  const key = await stage.givenKey({ credits: 100 });
  const idempotency = { digest: "digest", fingerprint: FINGERPRINT };
  const worded = { price: 10, prices: PRICES, callback: CALLBACK };
  const [first, second, third] = [
    stage.request(key, worded),
    stage.request(key, worded),
    stage.request(key, { ...worded, idempotency }),
  ];
  const nameOf = ({ requestId }: { requestId: string }): string => requestName(key.partition, requestId);
  for (const generation of [first, second, third]) await stage.admit(generation);
  const held = await readRequest(stage.redis, nameOf(first));
  await stage.bind(first);
  await changeRequest(stage.redis, nameOf(second), { details: JSON.stringify({ price_list: "a b%" }) });
  stage.clock.nowMs += HOLD_MS;
  for (const generation of [second, third]) await stage.void(generation, "due");
  await stage.bind(second);
  const entries = await readLedger(stage.redis, key.partition, LEDGER_START);
  const charged = entries.filter(({ accountId, type }) => accountId === key.accountId && type === "consume");
  return { held, charged: charged.map(detailsOf), void: await readRequest(stage.redis, nameOf(third)) };
}

test("fields keep their spaces and per cent signs, from either language to the other", async () => {
  const kept = await keptBy();
  expect(kept.held.callback).toBe(CALLBACK);
  expect(JSON.parse(kept.held.details ?? "")).toEqual({ list_price: 10, price_list: "a%20b%25.yaml" });
  expect(kept.held).toMatchObject({ state: "held", price: "10" });
  expect(kept.charged).toEqual([{ list_price: 10, price_list: "a%20b%25.yaml" }, { price_list: "a b%" }]);
  expect(kept.void).toMatchObject({ state: "void", fingerprint: FINGERPRINT, callback: CALLBACK });
});

const wordedBy = async (scripts?: ScriptRunner): Promise<unknown> => {
  const { held, charged, void: ended } = await keptBy(scripts);
  return [held.callback, held.details, charged, ended.fingerprint];
};

test.each(inShare(PACKED_MUTANTS))("the mistake is found: $what", async (mutant) => {
  const folder = await plantForTest(mutant);
  const worded = await wordedBy(createScriptRunner(connection.redis, { folder }));
  expect(worded).not.toEqual(await wordedBy());
});
