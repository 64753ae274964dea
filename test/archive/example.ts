import { type KeyRef, keyRef, partitionOf } from "../../src/records/names.ts";
import type { Stage } from "../support/store.ts";
import { createStage, onOneServer } from "../support/store.ts";
import { type ArchiveStage, PARTITIONS } from "./stage.ts";

const GEN2 = "/api/v1/gen2/text-to-video";
const PRO = "/api/v1/gen2-pro/text-to-video";

/** How long each task runs: a second, once it is rounded. */
const RUNS_MS = 600;

/** A change of an account: credits that are bought or taken back, or generations of a key and how they end. */
type Happening =
  | { at: string; buys: number; reference: string }
  | { at: string; returns: number; of: string; reference: string }
  | { at: string; key: string; endpoint: string; price: number; ends: "completed" | "failed" | "refused" };

const many = (days: readonly string[], one: Omit<Extract<Happening, { key: string }>, "at">): Happening[] =>
  days.map((at) => ({ ...one, at }));

/** Two customers over three months; the examples of docs/archive.md are about them. */
const HAPPENINGS: Readonly<Record<string, readonly Happening[]>> = {
  acme: [
    { at: "2025-09-03", buys: 500, reference: "order-1001" },
    ...many(["2025-09-12", "2025-09-13"], { key: "web", endpoint: GEN2, price: 10, ends: "completed" }),
    ...many(["2025-09-30"], { key: "batch", endpoint: PRO, price: 40, ends: "failed" }),
    { at: "2025-10-01", buys: 200, reference: "order-1040" },
    ...many(["2025-10-01", "2025-10-01", "2025-10-02"], {
      key: "web",
      endpoint: GEN2,
      price: 10,
      ends: "completed",
    }),
    ...many(["2025-10-02"], { key: "batch", endpoint: PRO, price: 40, ends: "completed" }),
    ...many(["2025-10-17", "2025-10-17"], { key: "batch", endpoint: PRO, price: 40, ends: "failed" }),
    ...many(["2025-10-18"], { key: "web", endpoint: GEN2, price: 10, ends: "refused" }),
    ...many(["2025-11-05"], { key: "web", endpoint: GEN2, price: 10, ends: "completed" }),
    { at: "2025-11-06", returns: 30, of: "order-1040", reference: "return-1040" },
  ],
  globex: [
    { at: "2025-09-20", buys: 100, reference: "order-1013" },
    ...many(["2025-11-02", "2025-11-02", "2025-11-03"], {
      key: "app",
      endpoint: GEN2,
      price: 10,
      ends: "completed",
    }),
    ...many(["2025-11-03"], { key: "app", endpoint: GEN2, price: 10, ends: "failed" }),
  ],
};

/** Lets it all happen in a store, by a clock that stands at those days. @returns the keys by `account/name` */
export async function givenExample({ connection }: ArchiveStage): Promise<Map<string, KeyRef>> {
  const keys = new Map<string, KeyRef>();
  for (const [accountId, happenings] of Object.entries(HAPPENINGS)) {
    const partition = partitionOf(accountId, PARTITIONS);
    const stage = createStage(onOneServer(connection), { partition });
    stage.clock.nowMs = Date.parse(happenings[0]!.at);
    for (const name of new Set(happenings.flatMap((one) => ("key" in one ? [one.key] : []))))
      keys.set(`${accountId}/${name}`, await stage.givenKey({ accountId, credits: 0 }));
    const anyKey = keyRef("", accountId, partition);
    for (const [count, one] of happenings.entries()) {
      // Noon, and a second later each.
      stage.clock.nowMs = Date.parse(`${one.at}T12:00:00Z`) + count * 1000;
      if ("buys" in one) await stage.recharge(anyKey, one.buys, one.reference);
      else if ("returns" in one) {
        const { returns: amount, of, reference } = one;
        const actor = { by: "tok_1 Ann", requestId: "req_ann" };
        await stage.reverse({ partition, accountId, of, amount, reference, reason: "returned", actor });
      } else await generate(stage, keys.get(`${accountId}/${one.key}`)!, one);
    }
  }
  return keys;
}

async function generate(
  stage: Stage,
  key: KeyRef,
  { endpoint, price, ends }: Extract<Happening, { key: string }>,
): Promise<void> {
  const generation = stage.request(key, { endpoint, price, retentionMs: 2 ** 40 });
  if (ends === "refused") {
    await stage.admit(generation);
    await stage.void(generation, "refused");
    return;
  }
  await stage.givenTask(generation);
  stage.clock.nowMs += RUNS_MS;
  await stage.observe(generation, ends);
}
