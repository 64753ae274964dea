import { partitionNames, requestName } from "../../records/names.ts";
import { requestOf } from "../../records/records.ts";
import { many } from "../../redis/pipelines.ts";
import type { BindCall, Binding } from "../../scripts/holds.ts";
import type { Charge } from "../outbox/outbox-queues.ts";
import type { PrimaryView } from "./loss-report.ts";

const KEPT_MS = 30_000;
const READ_BATCH = 2000;

export type SentCharge = Omit<Charge, "script">;

/** Charges of the last seconds, to be sent again if the store loses them. @param put resolves once it is on disk @param max about 1 KB each */
export function createConfirmedCharges(put: (charge: SentCharge) => Promise<void>, max: number) {
  const places: Place[] = [];
  let next = 0;
  /** When the last charge was answered. By no clock of a store: these may step, and differ between primaries. */
  let latestMs = 0;
  const resent = new Set<string>();

  const oldestFirst = (): Place[] => [...places.slice(next), ...places.slice(0, next)];

  const kept = (): SentCharge[] =>
    oldestFirst()
      .filter(({ answeredMs }) => answeredMs >= latestMs - KEPT_MS)
      .map((place) => place.charge());

  const recentOn = ({ has, nowMs }: Pick<PrimaryView, "has" | "nowMs">, storeId: string): SentCharge[] => {
    const now = nowMs();
    return kept().filter(
      ({ storeId: id, call, atMs, settleWithinMs = 0, untilMs = atMs + settleWithinMs }) =>
        id === storeId && now < untilMs && has(partitionNames(call.key.partition).ledger),
    );
  };

  return {
    recentOn,
    add(charge: SentCharge, outcome: Binding): void {
      if (outcome === "conflict" || outcome === "forgotten" || charge.storeId === undefined) return;
      if (outcome === "uncollected") charge.unpaid = true;
      latestMs = performance.now();
      const place = places[next];
      if (place) place.put(charge, latestMs);
      else places.push(new Place(charge, latestMs));
      next = next + 1 === max ? 0 : next + 1;
    },
    async missingOn(view: PrimaryView, storeId: string): Promise<SentCharge[]> {
      const { redis, within } = view;
      const own = recentOn(view, storeId);
      const missing: SentCharge[] = [];
      for (let at = 0; at < own.length; at += READ_BATCH) {
        const batch = own.slice(at, at + READ_BATCH);
        const replies = many<string | null, SentCharge>(redis, batch, (pipe, { call }) =>
          pipe.get(requestName(call.key.partition, call.requestId)),
        );
        const states = (await within(replies)).map((text) => requestOf(text).state);
        missing.push(...batch.filter((_, of) => states[of] !== "bound" && states[of] !== "finished"));
      }
      return missing;
    },
    /** Resolves once they are on disk: an operator may take hours to accept the store. */
    async sendAgain(charges: readonly SentCharge[]): Promise<void> {
      const fresh = charges.filter(({ call }) => !resent.has(call.requestId));
      for (const { call } of fresh) resent.add(call.requestId);
      await Promise.all(fresh.map(put));
    },
    forgetSentAgain(): void {
      if (resent.size === 0) return;
      // The next charges take the places of the oldest.
      const others = oldestFirst().filter(({ requestId }) => !resent.has(requestId));
      places.splice(0, places.length, ...others);
      next = places.length === max ? 0 : places.length;
      resent.clear();
    },
  };
}

/** Holds one charge after the other without objects of its own, so that keeping a charge costs the garbage collector two texts. */
class Place {
  /** Monotonic ms. */
  answeredMs!: number;
  requestId!: string;
  #atMs!: number;
  #storeId: string | undefined;
  #settleWithinMs: number | undefined;
  #untilMs: number | undefined;
  #unpaid: boolean | undefined;
  #key!: BindCall["key"];
  #price!: number;
  #endpoint!: string;
  #retentionMs!: number;
  #admittedAtMs: number | undefined;
  #idempotency: BindCall["idempotency"];
  #taskId!: string;
  #data!: string;
  #pollMs!: number;
  #maxAgeMs!: number;
  #upstream!: string;

  constructor(charge: SentCharge, answeredMs: number) {
    this.put(charge, answeredMs);
  }

  put({ storeId, atMs, settleWithinMs, untilMs, unpaid, call }: SentCharge, answeredMs: number): void {
    const { task } = call;
    this.answeredMs = answeredMs;
    this.#atMs = atMs;
    this.requestId = call.requestId;
    this.#storeId = storeId;
    this.#settleWithinMs = settleWithinMs;
    this.#untilMs = untilMs;
    this.#unpaid = unpaid;
    this.#key = call.key;
    this.#price = call.price;
    this.#endpoint = call.endpoint;
    this.#retentionMs = call.retentionMs;
    this.#admittedAtMs = call.admittedAtMs;
    this.#idempotency = call.idempotency;
    this.#taskId = task.taskId;
    this.#data = task.data;
    this.#pollMs = task.pollMs;
    this.#maxAgeMs = task.maxAgeMs;
    this.#upstream = task.upstream;
  }

  charge(): SentCharge {
    return {
      storeId: this.#storeId,
      atMs: this.#atMs,
      ...(this.#settleWithinMs !== undefined && { settleWithinMs: this.#settleWithinMs }),
      ...(this.#untilMs !== undefined && { untilMs: this.#untilMs }),
      ...(this.#unpaid && { unpaid: true }),
      call: {
        requestId: this.requestId,
        key: this.#key,
        price: this.#price,
        endpoint: this.#endpoint,
        retentionMs: this.#retentionMs,
        admittedAtMs: this.#admittedAtMs,
        idempotency: this.#idempotency,
        task: {
          taskId: this.#taskId,
          data: this.#data,
          pollMs: this.#pollMs,
          maxAgeMs: this.#maxAgeMs,
          upstream: this.#upstream,
        },
      },
    };
  }
}
